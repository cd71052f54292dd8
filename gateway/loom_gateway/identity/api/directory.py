"""The servicer of `loom.identity.v1.DirectoryService`."""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing
from itertools import zip_longest
from typing import Final, TypeVar

import grpc.aio

from loom.identity.v1 import access_pb2, directory_pb2, directory_pb2_grpc
from loom_common.auth.claims import NamespaceGrant, Role
from loom_common.auth.directory import Directory
from loom_common.auth.revocations import Revocation
from loom_common.call import current
from loom_common.errors import Unauthenticated
from loom_common.times import format_time
from loom_gateway.identity.api.identity import info_to_proto
from loom_gateway.identity.app.minting import Mint
from loom_gateway.identity.app.revocations import RevocationFeed, Update
from loom_gateway.identity.domain.delegation import TokenWish

# Default that the contract states.
_NAMESPACES: Final = 64
# Keeps a message below the limit of 8 MiB: a revocation takes up to about 400 bytes, an organisation 130.
_PER_MESSAGE: Final = 10_000
_MAX_AGE_MS: Final = 2**31 - 1

T = TypeVar("T")

_Context = grpc.aio.ServicerContext[object, object]


class DirectoryServicer(directory_pb2_grpc.DirectoryServiceServicer):
    """Tells services what they need to check callers themselves."""

    def __init__(self, feed: RevocationFeed, directory: Directory, mint: Mint) -> None:
        self._feed = feed
        self._directory = directory
        self._mint = mint

    async def WatchRevocations(
        self, request: directory_pb2.WatchRevocationsRequest, context: _Context
    ) -> AsyncIterator[directory_pb2.WatchRevocationsResponse]:
        """See the contract."""
        async with aclosing(self._feed.follow()) as updates:
            async for update in updates:
                for message in update_to_proto(update):
                    yield message

    async def GetNamespaceInfo(
        self, request: directory_pb2.GetNamespaceInfoRequest, context: _Context
    ) -> directory_pb2.GetNamespaceInfoResponse:
        """See the contract."""
        info = await self._directory.namespace_info(request.org, request.namespace)
        if info is None:
            return directory_pb2.GetNamespaceInfoResponse(found=False)
        return directory_pb2.GetNamespaceInfoResponse(found=True, namespace=info_to_proto(info))

    async def ListCallerNamespaces(
        self, request: directory_pb2.ListCallerNamespacesRequest, context: _Context
    ) -> directory_pb2.ListCallerNamespacesResponse:
        """See the contract."""
        limit = request.limit if request.HasField("limit") else _NAMESPACES
        found = await self._directory.caller_namespaces(list(request.kinds), limit)
        return directory_pb2.ListCallerNamespacesResponse(namespaces=[info_to_proto(info) for info in found])

    async def GetTrustClaims(
        self, request: directory_pb2.GetTrustClaimsRequest, context: _Context
    ) -> directory_pb2.GetTrustClaimsResponse:
        """See the contract."""
        claims = await self._directory.trust_claims(request.org, request.trust)
        return directory_pb2.GetTrustClaimsResponse(
            claims=[access_pb2.RequiredClaim(name=name, values=values) for name, values in claims.items()]
        )

    async def GetAccountEmail(
        self, request: directory_pb2.GetAccountEmailRequest, context: _Context
    ) -> directory_pb2.GetAccountEmailResponse:
        """See the contract."""
        email = await self._directory.account_email(request.org, request.subject)
        return directory_pb2.GetAccountEmailResponse(email=email)

    async def Delegate(
        self, request: directory_pb2.DelegateRequest, context: _Context
    ) -> directory_pb2.DelegateResponse:
        """See the contract."""
        claims = current().claims
        if claims is None:
            raise Unauthenticated("The call carries no caller's token, so there is nothing to make a token from.")
        wish = TokenWish(
            namespaces=[NamespaceGrant(request.namespace, Role[request.role.upper()])],
            ttl_s=request.ttl_s,
            consumer=request.consumer,
        )
        issued = await self._mint.unlisted(claims, wish, prefix=request.token_id_prefix)
        return directory_pb2.DelegateResponse(
            token=issued.token,
            token_id=issued.record.claims.jti,
            expires_at=format_time(issued.record.expires_at),
        )


def update_to_proto(update: Update) -> Iterator[directory_pb2.WatchRevocationsResponse]:
    """Returns an update as messages: one, or several where it holds more than one should carry."""
    columns = (_pages(update.revocations), _pages(update.calls_off), _pages(update.calls_on))
    pages = list(zip_longest(*columns)) or [(None, None, None)]
    for place, (revocations, off, on) in enumerate(pages):
        first = place == 0
        message = directory_pb2.WatchRevocationsResponse(
            snapshot=update.snapshot and first,
            jwks=update.jwks if first else "",
            revocations=[revocation_to_proto(revocation) for revocation in revocations or ()],
            model_calls_off=off,
            model_calls_on=on,
            more=place + 1 < len(pages),
        )
        if first and update.calls_age_s is not None:
            message.model_calls_age_ms = min(round(update.calls_age_s * 1000), _MAX_AGE_MS)
        yield message


def _pages(items: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), _PER_MESSAGE):
        yield items[start : start + _PER_MESSAGE]


def revocation_to_proto(revocation: Revocation) -> directory_pb2.Revocation:
    """Returns a revocation as a message."""
    return directory_pb2.Revocation(
        kind=revocation.kind, org=revocation.org, id=revocation.id, revoked_at=revocation.revoked_at
    )
