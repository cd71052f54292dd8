"""Services as an erasure sees them: each lists its tables and removes a subject from one of them."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final, Protocol

import grpc.aio

from loom.common.v1 import erasure_pb2 as pb
from loom.common.v1 import erasure_pb2_grpc as pb_grpc
from loom_common.erasure import Counted, ErasureSteps, Subject, subject_to_proto
from loom_common.times import format_time

_CENSUS_TIMEOUT_S: Final = 120.0
# Below what a service works on one call. A rewrite goes on behind it, and the step is done again until it is through.
_STEP_TIMEOUT_S: Final = 280.0


class ErasurePeer(Protocol):
    """One service."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    async def census(self, subject: Subject | None, rewritten_at: datetime | None = None) -> Sequence[Counted]:
        """Lists its tables, and counts what each holds of the subject, or of files that were replaced up to a time.

        Raises:
            LoomError: It cannot be asked now.
        """
        ...

    async def erase(self, subject: Subject, table: str) -> int:
        """Removes the subject from one table, and returns how many rows are left.

        Raises:
            LoomError: It cannot be asked now.
        """
        ...


class LocalPeer:
    """The service that runs the erasure."""

    def __init__(self, name: str, steps: ErasureSteps) -> None:
        self._name = name
        self._steps = steps

    @property
    def name(self) -> str:
        """See `ErasurePeer.name`."""
        return self._name

    async def census(self, subject: Subject | None, rewritten_at: datetime | None = None) -> Sequence[Counted]:
        """See `ErasurePeer.census`."""
        return await self._steps.census(subject, rewritten_at)

    async def erase(self, subject: Subject, table: str) -> int:
        """See `ErasurePeer.erase`."""
        return await self._steps.erase(subject, table)


class GrpcPeer:
    """Another service, over its channel."""

    def __init__(self, name: str, channel: grpc.aio.Channel) -> None:
        self._name = name
        self._stub = pb_grpc.ErasureStepServiceStub(channel)

    @property
    def name(self) -> str:
        """See `ErasurePeer.name`."""
        return self._name

    async def census(self, subject: Subject | None, rewritten_at: datetime | None = None) -> Sequence[Counted]:
        """See `ErasurePeer.census`."""
        request = pb.CensusRequest(
            subject=None if subject is None else subject_to_proto(subject),
            rewritten_at="" if rewritten_at is None else format_time(rewritten_at),
        )
        answer = await self._stub.Census(request, timeout=_CENSUS_TIMEOUT_S)
        return [Counted(one.table, one.no_memory_content, one.remaining_count) for one in answer.tables]

    async def erase(self, subject: Subject, table: str) -> int:
        """See `ErasurePeer.erase`."""
        request = pb.EraseStepRequest(subject=subject_to_proto(subject), table=table)
        return (await self._stub.EraseStep(request, timeout=_STEP_TIMEOUT_S)).remaining_count
