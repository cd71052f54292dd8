"""Builds the plane of procedures and hands its parts to each other."""

from dataclasses import dataclass

from loom.memory.v1 import procedure_pb2_grpc
from loom_common.clickhouse import ClickHouse
from loom_common.clock import Clock
from loom_common.conditional_writes import Claims
from loom_common.server import Service
from loom_memory.api.repeats import Repeats
from loom_memory.app.embedding import EmbeddingPort
from loom_memory.app.item_vectors import ItemVectors
from loom_memory.app.thresholds import ThresholdsInForce
from loom_memory.procedures.api.procedure import ProcedureServicer
from loom_memory.procedures.app.match import ProcedureMatch
from loom_memory.procedures.app.procedures import Procedures
from loom_memory.procedures.store.procedures import ProcedureRepository

_NAME = "memory"


@dataclass(frozen=True, slots=True)
class ProcedureParts:
    """The use cases of the plane over one database."""

    procedures: Procedures
    match: ProcedureMatch
    repeats: Repeats

    def service(self) -> Service:
        """Returns what the plane serves."""
        return Service(
            procedure_pb2_grpc.add_ProcedureServiceServicer_to_server,
            ProcedureServicer(self.procedures, self.match, self.repeats),
            "loom.memory.v1.ProcedureService",
        )


def build_procedures(
    ch: ClickHouse,
    vectors: ItemVectors,
    embedding: EmbeddingPort,
    thresholds: ThresholdsInForce,
    clock: Clock,
    repeats: Repeats,
) -> ProcedureParts:
    """Returns the parts over a migrated database."""
    rows = ProcedureRepository(ch)
    procedures = Procedures(rows, vectors, clock, None if ch.exclusive else Claims(ch, _NAME))
    return ProcedureParts(procedures, ProcedureMatch(rows, procedures, vectors, embedding, thresholds), repeats)
