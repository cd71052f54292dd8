"""The servicer of `loom.identity.v1.DirectoryService`."""

from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from typing import Final

import grpc.aio

from loom.identity.v1 import directory_pb2, directory_pb2_grpc
from loom_common.auth.directory import Directory
from loom_common.auth.revocations import Revocation
from loom_gateway.identity.api.identity import info_to_proto
from loom_gateway.identity.app.revocations import RevocationFeed, Update

# Default that the contract states.
_NAMESPACES: Final = 64
# Keeps a message far below the limit of 8 MiB: a revocation takes up to about 400 bytes.
_REVOCATIONS_PER_MESSAGE: Final = 10_000

_Context = grpc.aio.ServicerContext[object, object]


class DirectoryServicer(directory_pb2_grpc.DirectoryServiceServicer):
    """Tells services what they need to check callers themselves."""

    def __init__(self, feed: RevocationFeed, directory: Directory) -> None:
        self._feed = feed
        self._directory = directory

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


def update_to_proto(update: Update) -> Iterator[directory_pb2.WatchRevocationsResponse]:
    """Returns an update as messages: one, or several where it holds more revocations than one should carry."""
    for start in range(0, max(len(update.revocations), 1), _REVOCATIONS_PER_MESSAGE):
        part = update.revocations[start : start + _REVOCATIONS_PER_MESSAGE]
        yield directory_pb2.WatchRevocationsResponse(
            snapshot=update.snapshot and start == 0,
            jwks=update.jwks if start == 0 else "",
            revocations=[revocation_to_proto(revocation) for revocation in part],
            more=start + len(part) < len(update.revocations),
        )


def revocation_to_proto(revocation: Revocation) -> directory_pb2.Revocation:
    """Returns a revocation as a message."""
    return directory_pb2.Revocation(
        kind=revocation.kind, org=revocation.org, id=revocation.id, revoked_at=revocation.revoked_at
    )
