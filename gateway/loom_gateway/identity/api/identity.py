"""The servicer of `loom.identity.v1.IdentityService`."""

from datetime import UTC, datetime

import grpc.aio

from loom.identity.v1 import identity_pb2, identity_pb2_grpc
from loom_common.auth.claims import NamespaceGrant, ReadScope, Role
from loom_common.auth.directory import NamespaceInfo
from loom_common.call import current
from loom_common.times import format_time
from loom_gateway.identity.api.principals import principal_of
from loom_gateway.identity.app.directory import namespace_info
from loom_gateway.identity.app.model_calls import ModelCallsDesk
from loom_gateway.identity.app.namespaces import NamespaceDesk
from loom_gateway.identity.app.tokens import ListedToken, TokenDesk
from loom_gateway.identity.domain.delegation import TokenWish
from loom_gateway.identity.domain.model_calls import ModelCalls

# Defaults that the contract states.
_TTL_S = 2_592_000
_TOKENS_PER_PAGE = 50
_NAMESPACES_PER_PAGE = 100
_KIND = "memory"

_Context = grpc.aio.ServicerContext[object, object]


class IdentityServicer(identity_pb2_grpc.IdentityServiceServicer):
    """Manages tokens, namespaces and switches."""

    def __init__(self, tokens: TokenDesk, namespaces: NamespaceDesk, model_calls: ModelCallsDesk) -> None:
        self._tokens = tokens
        self._namespaces = namespaces
        self._model_calls = model_calls

    async def CreateToken(
        self, request: identity_pb2.CreateTokenRequest, context: _Context
    ) -> identity_pb2.CreateTokenResponse:
        """See the contract."""
        wish = token_wish_from_proto(request)
        issued = await self._tokens.create(principal_of(current()), request.org or None, wish, request.label)
        return identity_pb2.CreateTokenResponse(
            token=issued.token,
            token_id=issued.record.claims.jti,
            expires_at=format_time(issued.record.expires_at),
        )

    async def ListTokens(
        self, request: identity_pb2.ListTokensRequest, context: _Context
    ) -> identity_pb2.ListTokensResponse:
        """See the contract."""
        page = await self._tokens.page(
            principal_of(current()),
            request.org or None,
            ended_too=request.include_ended,
            page_size=request.page_size if request.HasField("page_size") else _TOKENS_PER_PAGE,
            page_token=request.page_token,
        )
        return identity_pb2.ListTokensResponse(
            tokens=[token_to_proto(token) for token in page.tokens], next_page_token=page.next_page_token
        )

    async def RevokeToken(
        self, request: identity_pb2.RevokeTokenRequest, context: _Context
    ) -> identity_pb2.RevokeTokenResponse:
        """See the contract."""
        revoked_at_s = await self._tokens.revoke(principal_of(current()), request.org or None, request.token_id)
        return identity_pb2.RevokeTokenResponse(token_id=request.token_id, revoked_at=_time(revoked_at_s))

    async def CreateNamespace(
        self, request: identity_pb2.CreateNamespaceRequest, context: _Context
    ) -> identity_pb2.CreateNamespaceResponse:
        """See the contract."""
        principal = principal_of(current())
        space, created = await self._namespaces.create(
            principal,
            request.org or None,
            request.name,
            kind=request.kind or _KIND,
            owner=request.owner,
            restricted=request.restricted,
        )
        return identity_pb2.CreateNamespaceResponse(
            namespace=info_to_proto(namespace_info(space, principal)), created=created
        )

    async def ListNamespaces(
        self, request: identity_pb2.ListNamespacesRequest, context: _Context
    ) -> identity_pb2.ListNamespacesResponse:
        """See the contract."""
        principal = principal_of(current())
        page = await self._namespaces.page(
            principal,
            request.org or None,
            page_size=request.page_size if request.HasField("page_size") else _NAMESPACES_PER_PAGE,
            page_token=request.page_token,
        )
        return identity_pb2.ListNamespacesResponse(
            namespaces=[info_to_proto(namespace_info(space, principal)) for space in page.namespaces],
            next_page_token=page.next_page_token,
        )

    async def SetModelCalls(
        self, request: identity_pb2.SetModelCallsRequest, context: _Context
    ) -> identity_pb2.SetModelCallsResponse:
        """See the contract."""
        switch, changed = await self._model_calls.switch(
            principal_of(current()), request.org or None, enabled=request.enabled
        )
        return identity_pb2.SetModelCallsResponse(model_calls=model_calls_to_proto(switch), changed=changed)

    async def GetModelCalls(
        self, request: identity_pb2.GetModelCallsRequest, context: _Context
    ) -> identity_pb2.GetModelCallsResponse:
        """See the contract."""
        switch = await self._model_calls.show(principal_of(current()), request.org or None)
        return identity_pb2.GetModelCallsResponse(model_calls=model_calls_to_proto(switch))


def model_calls_to_proto(switch: ModelCalls) -> identity_pb2.ModelCalls:
    """Returns a switch as a message."""
    return identity_pb2.ModelCalls(
        org=switch.org,
        enabled=switch.enabled,
        updated_at="" if switch.updated_at is None else format_time(switch.updated_at),
        updated_by=switch.updated_by,
    )


def token_wish_from_proto(request: identity_pb2.CreateTokenRequest) -> TokenWish:
    """Returns what a request wants of a token; its values were checked against the contract."""
    return TokenWish(
        namespaces=[NamespaceGrant(grant.namespace, Role[grant.role.upper()]) for grant in request.namespaces],
        ttl_s=request.ttl_s if request.HasField("ttl_s") else _TTL_S,
        subject=request.subject,
        org_admin=request.org_admin,
        read_scope=ReadScope(request.read_scope) if request.HasField("read_scope") else None,
        user_id=request.user_id,
        session_id=request.session_id,
    )


def token_to_proto(token: ListedToken) -> identity_pb2.TokenInfo:
    """Returns a listed token as a message."""
    claims = token.record.claims
    return identity_pb2.TokenInfo(
        token_id=claims.jti,
        org=claims.org,
        subject=claims.sub,
        label=token.record.label,
        namespaces=[
            identity_pb2.NamespaceRole(namespace=grant.namespace, role=grant.role.label) for grant in claims.namespaces
        ],
        org_admin=claims.org_admin,
        created_at=format_time(token.record.created_at),
        expires_at=format_time(token.record.expires_at),
        revoked_at="" if token.revoked_at_s is None else _time(token.revoked_at_s),
        read_scope=claims.read_scope.value,
    )


def info_to_proto(info: NamespaceInfo) -> identity_pb2.NamespaceInfo:
    """Returns a namespace as a message."""
    return identity_pb2.NamespaceInfo(
        org=info.org,
        name=info.name,
        kind=info.kind,
        owner=info.owner,
        restricted=info.restricted,
        created_at=info.created_at,
        role=info.role,
    )


def _time(seconds: float) -> str:
    return format_time(datetime.fromtimestamp(seconds, UTC))
