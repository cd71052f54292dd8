"""The part that every service takes in erasures: what its tables can hold of a subject, and how each loses it.

A service lists all of its tables in its census, one line each beside the repository's own words of them; a test looks
for a table that is in no census. What a table can hold of a user or of a memory is a condition over its rows, written
once and used to count and to remove.
"""

# ruff: noqa: S608  (what is put together are constants of the services and quoted names; every value is bound)

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import grpc.aio

from loom.common.v1 import erasure_pb2 as pb
from loom.common.v1 import erasure_pb2_grpc as pb_grpc
from loom_common.clickhouse import ClickHouse, own_write_reads, tagged
from loom_common.errors import InvalidArgument
from loom_common.server import Service
from loom_common.times import format_time, parse_time

STEP_SERVICE: Final = "loom.common.v1.ErasureStepService"

add_erasure_steps: Final = pb_grpc.add_ErasureStepServiceServicer_to_server

IN_ORG: Final = "org = {org:String} AND ({namespace:String} = '' OR namespace = {namespace:String})"
"""Keeps the rows of one namespace, or of every one of an organisation."""

# A rewrite of a large table takes minutes; it goes on where nobody waits for it any more.
_REWRITE_TIMEOUT_S: Final = 270.0
_GONE: Final = {"mutations_sync": 2}

_FILES: Final = """SELECT count() FROM system.parts
WHERE database = currentDatabase() AND table = {table:String} AND active = 0
    AND remove_time <= {rewritten_at:DateTime64(3, 'UTC')}"""


@dataclass(frozen=True, slots=True)
class NamedMemory:
    """One memory of a subject."""

    namespace: str
    key: str
    user_id: str
    session_id: str


@dataclass(frozen=True, slots=True)
class Subject:
    """What is erased: everything of a user, named memories, or of a user's the memories that were found.

    Attributes:
        org: Organisation.
        namespace: Namespace; empty for every one of the organisation.
        user_id: User whose rows go; empty where only memories are named.
        memories: Memories whose rows go.
        started_at: Rows that are newer stay.
        texts_only: Whether the memories stay, and only what repeats their texts goes.
    """

    org: str
    namespace: str
    user_id: str
    memories: tuple[NamedMemory, ...]
    started_at: datetime
    texts_only: bool = False

    @property
    def upto(self) -> int:
        """The store's number above which rows stay: numbers are nanoseconds."""
        return round(self.started_at.timestamp() * 1000) * 1_000_000


@dataclass(frozen=True, slots=True)
class HeldTable:
    """One table of a census.

    Conditions bind `org`, `namespace`, `user_id`, `started_at` (DateTime64(3, 'UTC')), `upto` (UInt64), `keys`
    (Array(String)) and `memories` (Array(Tuple(String, String, String, String)): namespace, key, user and session).

    Attributes:
        table: Its name.
        of_user: Keeps the rows of a user; empty where a user alone says nothing of them.
        of_memories: Keeps the rows of named memories; empty where a memory says nothing of them.
        scrubbed: Assignments that take the subject out of a row which stays; empty where the rows go.
        names_only: Whether rows name memories and hold nothing of what they say.
        no_memory_content: Why it can hold nothing of a memory or of a user; empty where it can.
        erased_with: Owner's own way to remove rows, beside what is removed here.
    """

    table: str
    of_user: str = ""
    of_memories: str = ""
    scrubbed: str = ""
    names_only: bool = False
    no_memory_content: str = ""
    erased_with: Callable[[Subject], Awaitable[None]] | None = None


@dataclass(frozen=True, slots=True)
class Counted:
    """What one table holds of a subject."""

    table: str
    no_memory_content: str
    remaining: int


class ErasureSteps:
    """Counts and erases in the tables of one service."""

    def __init__(self, ch: ClickHouse, census: Sequence[HeldTable]) -> None:
        self._ch = ch
        self._reads = own_write_reads(ch)
        self._census = {held.table: held for held in census}

    @property
    def tables(self) -> tuple[HeldTable, ...]:
        """Every table, in the order in which a subject is removed from them."""
        return tuple(self._census.values())

    async def census(self, subject: Subject | None, rewritten_at: datetime | None = None) -> list[Counted]:
        """Lists every table, with what it holds of the subject, or of replaced files.

        Args:
            subject: Whose rows are counted; None to count none.
            rewritten_at: Counts files instead that were replaced up to then and are still there.
        """
        found = []
        with tagged("erasure.census"):
            for held in self.tables:
                remaining = 0
                if held.no_memory_content:
                    pass
                elif rewritten_at is not None:
                    remaining = await self._files(held.table, rewritten_at)
                elif subject is not None:
                    remaining = await self._count(held, subject)
                found.append(Counted(held.table, held.no_memory_content, remaining))
        return found

    async def erase(self, subject: Subject, table: str) -> int:
        """Removes the subject from one table, and returns how many rows are left once the table is rewritten.

        Raises:
            InvalidArgument: The service owns no such table.
        """
        held = self._census.get(table)
        if held is None:
            raise InvalidArgument.of("table", "is none of this service")
        if held.no_memory_content:
            return 0
        with tagged("erasure.step"):
            if held.erased_with is not None and not (held.names_only and subject.texts_only):
                await held.erased_with(subject)
            where = _condition(held, subject)
            if where and await self._count(held, subject):
                target = quote_identifier(table)
                sql = f"ALTER TABLE {target} DELETE WHERE {where}"
                if held.scrubbed:
                    names = held.scrubbed
                    sql = f"ALTER TABLE {target} UPDATE {names} WHERE {where}"
                await self._ch.command(sql, bound_in(sql, subject), settings=_GONE, timeout_s=_REWRITE_TIMEOUT_S)
            return await self._count(held, subject)

    async def _count(self, held: HeldTable, subject: Subject) -> int:
        where = _condition(held, subject)
        if not where:
            return 0
        target = quote_identifier(held.table)
        sql = f"SELECT count() FROM {target} WHERE {where}"
        return int((await self._ch.query(sql, bound_in(sql, subject), settings=self._reads)).scalar())

    async def _files(self, table: str, rewritten_at: datetime) -> int:
        found = await self._ch.query(_FILES, {"table": table, "rewritten_at": rewritten_at})
        return int(found.scalar())


class ErasureStepServicer(pb_grpc.ErasureStepServiceServicer):
    """Answers `erasure.census` and `erasure.step` for one service."""

    def __init__(self, steps: ErasureSteps) -> None:
        self._steps = steps

    async def Census(
        self, request: pb.CensusRequest, context: grpc.aio.ServicerContext[pb.CensusRequest, pb.CensusResponse]
    ) -> pb.CensusResponse:
        """See the contract."""
        subject = subject_from_proto(request.subject) if request.HasField("subject") else None
        rewritten_at = parse_time(request.rewritten_at, "rewritten_at") if request.rewritten_at else None
        counted = await self._steps.census(subject, rewritten_at)
        return pb.CensusResponse(
            tables=[
                pb.CensusTable(table=one.table, no_memory_content=one.no_memory_content, remaining_count=one.remaining)
                for one in counted
            ]
        )

    async def EraseStep(
        self,
        request: pb.EraseStepRequest,
        context: grpc.aio.ServicerContext[pb.EraseStepRequest, pb.EraseStepResponse],
    ) -> pb.EraseStepResponse:
        """See the contract."""
        remaining = await self._steps.erase(subject_from_proto(request.subject), request.table)
        return pb.EraseStepResponse(remaining_count=remaining)


def erasure_service(ch: ClickHouse, census: Sequence[HeldTable]) -> Service:
    """Returns what a service serves for erasures, over the tables of its census and the shared ones."""
    servicer = ErasureStepServicer(ErasureSteps(ch, census))
    return Service(add_erasure_steps, servicer, STEP_SERVICE)


def shared_tables(service: str) -> tuple[HeldTable, ...]:
    """Returns the census of the tables that services share, of one service's rows."""
    where = _OF_SERVICE[service]
    return (
        HeldTable("schema_migrations", no_memory_content="names and digests of migrations"),
        HeldTable("claims", no_memory_content="names of locks, without any text; kept for a day"),
        HeldTable("leases", no_memory_content="names of background work"),
        # An answer that is kept may name a memory; of whom, a row does not say: those of the namespace go.
        HeldTable("idempotency_keys", of_user=where, of_memories=where),
    )


# `subject` of a row is JSON: who called, and which namespace.
_ANSWERS: Final = """org = {org:String} AND created_at <= {started_at:DateTime64(3, 'UTC')}
    AND ({namespace:String} = '' OR JSONExtractString(subject, 2) = {namespace:String})"""
_OF_SERVICE: Final[Mapping[str, str]] = {
    name: f"service = '{name}' AND {_ANSWERS}"
    for name in ("identity", "embedding", "llm", "memory", "insights", "assistant")
}


def quote_identifier(name: str) -> str:
    """Returns the name of a table as a statement writes it."""
    return "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"


def subject_to_proto(subject: Subject) -> pb.ErasureSubject:
    """Returns the message of a subject."""
    return pb.ErasureSubject(
        org=subject.org,
        namespace=subject.namespace,
        user_id=subject.user_id,
        memories=[
            pb.ErasedMemory(namespace=one.namespace, key=one.key, user_id=one.user_id, session_id=one.session_id)
            for one in subject.memories
        ],
        started_at=format_time(subject.started_at),
        texts_only=subject.texts_only,
    )


def subject_from_proto(message: pb.ErasureSubject) -> Subject:
    """Returns the subject of a message.

    Raises:
        InvalidArgument: Its time cannot be read.
    """
    return Subject(
        org=message.org,
        namespace=message.namespace,
        user_id=message.user_id,
        memories=tuple(NamedMemory(one.namespace, one.key, one.user_id, one.session_id) for one in message.memories),
        started_at=parse_time(message.started_at, "subject.started_at"),
        texts_only=message.texts_only,
    )


def _condition(held: HeldTable, subject: Subject) -> str:
    """Returns what keeps the subject's rows, or nothing where none can be there."""
    if held.names_only and subject.texts_only:
        return ""
    parts = []
    if held.of_user and subject.user_id:
        parts.append(f"({held.of_user})")
    if held.of_memories and subject.memories:
        parts.append(f"({held.of_memories})")
    return " OR ".join(parts)


def bound_in(sql: str, subject: Subject, **more: object) -> dict[str, object]:
    """Returns those of a subject's parameters, and of others, that a statement binds."""
    given: dict[str, object] = {
        "org": subject.org,
        "namespace": subject.namespace,
        "user_id": subject.user_id,
        "started_at": subject.started_at,
        "upto": subject.upto,
        "keys": sorted({memory.key for memory in subject.memories}),
        "memories": [(one.namespace, one.key, one.user_id, one.session_id) for one in subject.memories],
        **more,
    }
    return {name: value for name, value in given.items() if f"{{{name}:" in sql}
