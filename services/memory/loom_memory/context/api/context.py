"""`loom.memory.v1.ContextService`."""

from typing import Final

import grpc.aio

from loom.memory.v1 import context_pb2 as pb
from loom.memory.v1 import context_pb2_grpc as pb_grpc
from loom_common.call import current, scope
from loom_memory.app.access import actor
from loom_memory.context.api.messages import (
    fetched_to_proto,
    pack_request_from_proto,
    pack_to_proto,
    parked_to_proto,
)
from loom_memory.context.app.blobs import Blobs
from loom_memory.context.app.packing import ContextPacker

_DEFAULT_TTL_S: Final = 604_800
_DEFAULT_LIMIT: Final = 4_000


class ContextServicer(pb_grpc.ContextServiceServicer):
    """Translates, delegates, translates back; the interceptors answer a LoomError."""

    def __init__(self, packer: ContextPacker, blobs: Blobs) -> None:
        self._packer = packer
        self._blobs = blobs

    async def PackContext(
        self,
        request: pb.PackContextRequest,
        context: grpc.aio.ServicerContext[pb.PackContextRequest, pb.PackContextResponse],
    ) -> pb.PackContextResponse:
        """See the contract."""
        asked = pack_request_from_proto(request)
        return pack_to_proto(await self._packer.pack(scope(), asked), asked)

    async def OffloadContext(
        self,
        request: pb.OffloadContextRequest,
        context: grpc.aio.ServicerContext[pb.OffloadContextRequest, pb.OffloadContextResponse],
    ) -> pb.OffloadContextResponse:
        """See the contract."""
        claims = current().claims
        parked = await self._blobs.park(
            scope(),
            request.content,
            key=request.blob_key,
            summary=request.summary,
            ttl_s=request.ttl_seconds if request.HasField("ttl_seconds") else _DEFAULT_TTL_S,
            actor=actor(),
            user_id=claims.user_id if claims is not None else "",
        )
        return parked_to_proto(parked)

    async def FetchContext(
        self,
        request: pb.FetchContextRequest,
        context: grpc.aio.ServicerContext[pb.FetchContextRequest, pb.FetchContextResponse],
    ) -> pb.FetchContextResponse:
        """See the contract."""
        fetched = await self._blobs.fetch(
            scope(),
            request.blob_key,
            offset=request.offset,
            limit=request.limit if request.HasField("limit") else _DEFAULT_LIMIT,
            pattern=request.pattern,
            around=request.context_lines,
        )
        return pb.FetchContextResponse(found=False) if fetched is None else fetched_to_proto(fetched)
