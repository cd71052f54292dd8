"""Builds the session plane and hands its parts to each other."""

from dataclasses import dataclass

from loom.memory.v1 import session_pb2_grpc
from loom_common.clickhouse import ClickHouse
from loom_common.clock import Clock
from loom_common.conditional_writes import Claims
from loom_common.server import Service
from loom_memory.api.repeats import Repeats
from loom_memory.app.llm import LlmPort
from loom_memory.conversations.store.conversations import ConversationRepository
from loom_memory.sessions.api.session import SessionServicer
from loom_memory.sessions.app.briefs import LeftBehind, SessionBriefs
from loom_memory.sessions.app.runs import Runs
from loom_memory.sessions.app.working import WorkingMemory
from loom_memory.sessions.store.briefs import BriefRepository
from loom_memory.sessions.store.runs import RunRepository
from loom_memory.sessions.store.sources import SessionSources
from loom_memory.sessions.store.working import WorkingRepository
from loom_memory.settings import MemorySettings

_NAME = "memory"


@dataclass(frozen=True, slots=True)
class SessionParts:
    """The use cases of the plane over one database."""

    working: WorkingMemory
    briefs: SessionBriefs
    runs: Runs
    repeats: Repeats

    def service(self) -> Service:
        """Returns what the plane serves."""
        return Service(
            session_pb2_grpc.add_SessionServiceServicer_to_server,
            SessionServicer(self.working, self.briefs, self.runs, self.repeats),
            "loom.memory.v1.SessionService",
        )


def build_sessions(
    ch: ClickHouse, llm: LlmPort | None, settings: MemorySettings, clock: Clock, repeats: Repeats
) -> SessionParts:
    """Returns the parts over a migrated database."""
    claims = None if ch.exclusive else Claims(ch, _NAME)
    briefs = SessionBriefs(
        BriefRepository(ch),
        LeftBehind(SessionSources(ch), ConversationRepository(ch), clock),
        llm if settings.session_brief_llm else None,
        settings.session_brief_llm_model or None,
        clock,
        claims,
    )
    return SessionParts(
        WorkingMemory(WorkingRepository(ch), clock, claims), briefs, Runs(RunRepository(ch), clock, claims), repeats
    )
