"""An identity that tells services what they must have heard before they call models, and nothing else."""

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager

import grpc.aio
from support.grpc import Deployment

from loom.identity.v1 import directory_pb2 as pb
from loom.identity.v1 import directory_pb2_grpc as pb_grpc
from loom_common.auth.tokens import SigningKey, jwks
from loom_common.server import Service


class TellingDirectory(pb_grpc.DirectoryServiceServicer):
    """Tells once which keys sign tokens and which organisations' calls to models are off, and keeps the stream open.

    It knows no namespace.
    """

    def __init__(self, off: Collection[str], key: SigningKey) -> None:
        self._off = off
        self._jwks = jwks([key.public_jwk()])

    async def WatchRevocations(
        self,
        request: pb.WatchRevocationsRequest,
        context: grpc.aio.ServicerContext[pb.WatchRevocationsRequest, pb.WatchRevocationsResponse],
    ) -> AsyncIterator[pb.WatchRevocationsResponse]:
        """Tells it."""
        yield pb.WatchRevocationsResponse(
            snapshot=True, jwks=self._jwks, model_calls_off=self._off, model_calls_age_ms=0
        )
        await asyncio.Event().wait()

    async def GetNamespaceInfo(
        self,
        request: pb.GetNamespaceInfoRequest,
        context: grpc.aio.ServicerContext[pb.GetNamespaceInfoRequest, pb.GetNamespaceInfoResponse],
    ) -> pb.GetNamespaceInfoResponse:
        """Knows none."""
        return pb.GetNamespaceInfoResponse()


@asynccontextmanager
async def telling_identity(deployment: Deployment, off: Collection[str] = ()) -> AsyncIterator[str]:
    """Runs it; gives the value for `LOOM_IDENTITY_ADDR`."""
    telling = TellingDirectory(off, deployment.signing_key)  # type: ignore[abstract]  # grpc answers UNIMPLEMENTED for the rest
    service = Service(pb_grpc.add_DirectoryServiceServicer_to_server, telling, "loom.identity.v1.DirectoryService")
    async with deployment.serving(service, name="identity", LOOM_DRAIN_S=0) as server:
        yield server.address
