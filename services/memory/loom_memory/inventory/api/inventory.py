"""`loom.memory.v1.InventoryService`."""

from typing import Final

import grpc.aio

from loom.memory.v1 import inventory_pb2 as pb
from loom.memory.v1 import inventory_pb2_grpc as pb_grpc
from loom_common.call import Scope
from loom_common.times import format_optional_time, format_time, parse_time
from loom_memory.inventory.app.inventories import Inventories
from loom_memory.inventory.domain.counts import Names

_NAMES: Final = 20
_WRITERS: Final = 50


class InventoryServicer(pb_grpc.InventoryServiceServicer):
    """Translates, delegates, translates back; the interceptors answer a LoomError."""

    def __init__(self, inventories: Inventories) -> None:
        self._inventories = inventories

    async def CountInventory(
        self,
        request: pb.CountInventoryRequest,
        context: grpc.aio.ServicerContext[pb.CountInventoryRequest, pb.CountInventoryResponse],
    ) -> pb.CountInventoryResponse:
        """See the contract."""
        limit = request.limit if request.HasField("limit") else _NAMES
        counted = await self._inventories.inventory(Scope(request.org, request.namespace), list(request.by), limit)
        totals = counted.totals
        return pb.CountInventoryResponse(
            memory_count=totals.memories,
            user_count=totals.users,
            session_count=totals.sessions,
            agent_count=totals.agents,
            pinned_count=totals.pinned,
            ended_count=totals.ended,
            open_conflict_count=totals.open_conflicts,
            document_count=totals.documents,
            document_bytes=totals.document_bytes,
            first_write_at=format_optional_time(totals.first_write_at),
            last_write_at=format_optional_time(totals.last_write_at),
            groups=[_names_to_proto(names) for names in counted.groups],
            read_at=format_time(counted.read_at),
        )

    async def CountActivity(
        self,
        request: pb.CountActivityRequest,
        context: grpc.aio.ServicerContext[pb.CountActivityRequest, pb.CountActivityResponse],
    ) -> pb.CountActivityResponse:
        """See the contract."""
        activity = await self._inventories.activity(
            Scope(request.org, request.namespace),
            parse_time(request.since, "since"),
            parse_time(request.until, "until"),
            request.limit if request.HasField("limit") else _WRITERS,
        )
        return pb.CountActivityResponse(
            writers=[
                pb.WriterCount(actor=each.actor, agent=each.agent, new_count=each.new, rewritten_count=each.rewritten)
                for each in activity.writers
            ],
            shown_memory_count=activity.shown,
            conflict_found_count=activity.conflicts_found,
            conflict_resolved_count=activity.conflicts_resolved,
        )


def _names_to_proto(names: Names) -> pb.CountedNames:
    counted = [pb.CountedName(name=name, count=count) for name, count in names.counts]
    return pb.CountedNames(by=names.by, names=counted, name_count=names.names, total_count=names.total)
