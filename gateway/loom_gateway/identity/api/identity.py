"""The servicer of `loom.identity.v1.IdentityService`."""

from datetime import UTC, datetime
from typing import Final

import grpc.aio

from loom.identity.v1 import identity_pb2, identity_pb2_grpc
from loom_common.auth.claims import NamespaceGrant, ReadScope, Role
from loom_common.auth.directory import NamespaceInfo, policy_from_proto, policy_to_proto
from loom_common.call import current
from loom_common.errors import InvalidArgument
from loom_common.idempotency import IdempotencyKeys, keyed_request
from loom_common.times import format_time
from loom_common.write_policy import WritePolicy, require_patterns
from loom_gateway.identity.api.principals import principal_of
from loom_gateway.identity.app.directory import namespace_info
from loom_gateway.identity.app.exchange import TokenExchange
from loom_gateway.identity.app.minting import IssuedToken
from loom_gateway.identity.app.model_calls import ModelCallsDesk
from loom_gateway.identity.app.namespaces import NamespaceDesk
from loom_gateway.identity.app.session_end import SessionEnd
from loom_gateway.identity.app.tokens import ListedToken, TokenDesk
from loom_gateway.identity.domain.delegation import TokenWish
from loom_gateway.identity.domain.model_calls import ModelCalls
from loom_gateway.identity.domain.namespaces import NamespaceChange, Traits

# Defaults that the contract states.
_TTL_S = 2_592_000
_TOKENS_PER_PAGE = 50
_NAMESPACES_PER_PAGE = 100
_KIND = "memory"
_PLAIN_TRAITS: Final = frozenset(
    {"shared", "classification", "traffic_class", "rerank_endpoint", "classifier_endpoint", "daily_cost_cap_usd"}
)
_LLM_CACHE: Final = {"on": True, "off": False, "default": None}
_ACCESS_TOKEN: Final = "urn:ietf:params:oauth:token-type:access_token"  # noqa: S105 - a name of RFC 8693

_Context = grpc.aio.ServicerContext[object, object]


class IdentityServicer(identity_pb2_grpc.IdentityServiceServicer):
    """Manages tokens, namespaces and switches."""

    def __init__(
        self,
        tokens: TokenDesk,
        sessions: SessionEnd,
        exchange: TokenExchange,
        namespaces: NamespaceDesk,
        model_calls: ModelCallsDesk,
        repeats: IdempotencyKeys,
    ) -> None:
        self._tokens = tokens
        self._sessions = sessions
        self._exchange = exchange
        self._namespaces = namespaces
        self._model_calls = model_calls
        self._repeats = repeats

    async def CreateToken(
        self, request: identity_pb2.CreateTokenRequest, context: _Context
    ) -> identity_pb2.CreateTokenResponse:
        """See the contract."""
        issued = await self._issued(request)
        return identity_pb2.CreateTokenResponse(
            token=issued.token,
            token_id=issued.record.claims.jti,
            expires_at=format_time(issued.record.expires_at),
        )

    async def _issued(self, request: identity_pb2.CreateTokenRequest) -> IssuedToken:
        """Makes the token, or signs once more the one that was made under the call's idempotency key."""
        principal = principal_of(current())
        made: list[IssuedToken] = []

        async def make() -> bytes:
            wish = token_wish_from_proto(request)
            made.append(await self._tokens.create(principal, request.org or None, wish, request.label))
            # Kept is which token it was. What is stored never holds a token.
            return made[0].record.claims.jti.encode()

        # Another token of the same subject may hold less, and would be refused what this one was given.
        keyed = keyed_request(request, principal.claims.jti if principal.claims else "")
        if keyed is None:
            await make()
            return made[0]
        token_id = (await self._repeats.once(keyed, make)).decode()
        return made[0] if made else await self._tokens.again(principal.org(request.org or None), token_id)

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
        named = [name for name in ("token_id", "subject", "session") if getattr(request, name)]
        if len(named) != 1:
            raise InvalidArgument.of("token_id", "`subject` and `session`: exactly one of them is named")
        principal, org = principal_of(current()), request.org or None
        if request.subject:
            revoked_at_s = await self._tokens.revoke_subject(principal, org, request.subject)
        elif request.session:
            revoked_at_s = await self._sessions.end(principal, org, request.session)
        else:
            revoked_at_s = await self._tokens.revoke(principal, org, request.token_id)
        return identity_pb2.RevokeTokenResponse(
            token_id=request.token_id,
            subject=request.subject,
            session=request.session,
            revoked_at=_time(revoked_at_s),
        )

    async def ExchangeToken(
        self, request: identity_pb2.ExchangeTokenRequest, context: _Context
    ) -> identity_pb2.ExchangeTokenResponse:
        """See the contract."""
        ttl_s = request.ttl_s if request.HasField("ttl_s") else None
        done = await self._exchange.exchange(request.org, request.trust, request.subject_token, ttl_s)
        record = done.issued.record
        return identity_pb2.ExchangeTokenResponse(
            access_token=done.issued.token,
            issued_token_type=_ACCESS_TOKEN,
            token_type="Bearer",  # noqa: S106 - how it is sent
            expires_in=int(record.claims.exp - record.claims.iat),
            token_id=record.claims.jti,
            subject=record.claims.sub,
            namespace=done.namespace,
            expires_at=format_time(record.expires_at),
        )

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
            traits=traits_from_proto(request),
        )
        return identity_pb2.CreateNamespaceResponse(
            namespace=info_to_proto(namespace_info(space, principal)), created=created
        )

    async def UpdateNamespace(
        self, request: identity_pb2.UpdateNamespaceRequest, context: _Context
    ) -> identity_pb2.UpdateNamespaceResponse:
        """See the contract."""
        principal = principal_of(current())
        change = namespace_change_from_proto(request)
        space, changed = await self._namespaces.update(principal, request.org or None, request.name, change)
        return identity_pb2.UpdateNamespaceResponse(
            namespace=info_to_proto(namespace_info(space, principal)), changed=changed
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
        shared=info.shared,
        classification=info.classification,
        traffic_class=info.traffic_class,
        rerank_endpoint=info.rerank_endpoint,
        classifier_endpoint=info.classifier_endpoint,
        llm_cache=info.llm_cache,
        daily_cost_cap_usd=info.daily_cost_cap_usd,
        updated_at=info.updated_at,
        write_policy=policy_to_proto(info.write_policy),
    )


def traits_from_proto(request: identity_pb2.CreateNamespaceRequest) -> Traits:
    """Returns what a request says of a namespace beside its name, kind and owner.

    Raises:
        InvalidArgument: A pattern of its policy cannot be used.
    """
    return Traits(
        shared=request.shared,
        classification=request.classification,
        traffic_class=request.traffic_class,
        rerank_endpoint=request.rerank_endpoint,
        classifier_endpoint=request.classifier_endpoint,
        llm_cache=request.llm_cache if request.HasField("llm_cache") else None,
        daily_cost_cap_usd=request.daily_cost_cap_usd if request.HasField("daily_cost_cap_usd") else None,
        write_policy=_policy(request.write_policy),
    )


def _policy(message: identity_pb2.WritePolicy) -> WritePolicy:
    require_patterns(message.blocked_patterns, "write_policy.blocked_patterns")
    return policy_from_proto(message)


def namespace_change_from_proto(request: identity_pb2.UpdateNamespaceRequest) -> NamespaceChange:
    """Returns what a namespace is to become.

    Raises:
        InvalidArgument: The request sets the cap and takes it away, or a pattern of its policy cannot be used.
    """
    sent = {field.name for field, _ in request.ListFields()}
    traits: dict[str, str | bool | float | WritePolicy | None] = {
        name: getattr(request, name) for name in _PLAIN_TRAITS & sent
    }
    if request.HasField("llm_cache"):
        traits["llm_cache"] = _LLM_CACHE[request.llm_cache]
    if request.HasField("write_policy"):
        traits["write_policy"] = _policy(request.write_policy)
    if request.clear_daily_cost_cap:
        if "daily_cost_cap_usd" in traits:
            raise InvalidArgument.of("clear_daily_cost_cap", "stands beside `daily_cost_cap_usd`; send one of them")
        traits["daily_cost_cap_usd"] = None
    return NamespaceChange(
        owner=request.owner if request.HasField("owner") else None,
        restricted=request.restricted if request.HasField("restricted") else None,
        traits=traits,
    )


def _time(seconds: float) -> str:
    return format_time(datetime.fromtimestamp(seconds, UTC))
