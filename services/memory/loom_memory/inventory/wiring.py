"""Builds what counts a namespace."""

from loom.memory.v1 import inventory_pb2_grpc
from loom_common.clickhouse import ClickHouse
from loom_common.clock import Clock
from loom_common.server import Service
from loom_memory.inventory.api.inventory import InventoryServicer
from loom_memory.inventory.app.inventories import Inventories
from loom_memory.inventory.store.counts import NamespaceCounts


def inventory_service(ch: ClickHouse, clock: Clock, *, recorded: bool) -> Service:
    """Returns what is served over a migrated database; `recorded` where it is recorded what reads show."""
    return Service(
        inventory_pb2_grpc.add_InventoryServiceServicer_to_server,
        InventoryServicer(Inventories(NamespaceCounts(ch), clock, recorded=recorded)),
        "loom.memory.v1.InventoryService",
    )
