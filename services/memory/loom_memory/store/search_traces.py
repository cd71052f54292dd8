"""The table `search_traces`: searches as they were asked and what they found."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from loom_common.call import Scope
from loom_common.clickhouse import ClickHouse, Table
from loom_memory.domain.memory import Identity

TABLE: Final = Table.of(
    "search_traces",
    org="LowCardinality(String)",
    namespace="LowCardinality(String)",
    asked_at="DateTime64(3, 'UTC')",
    request_id="String",
    op="LowCardinality(String)",
    subject="String",
    user_id="String",
    session_id="String",
    query="String",
    request="String",
    found="Array(Tuple(String, String, String))",
    embedding_model="LowCardinality(String)",
    expires_at="DateTime64(3, 'UTC')",
)

_ROW: Final = "org, namespace, asked_at, request_id, op, subject, user_id, session_id, query, request, found"

_SINCE: Final = f"""SELECT {_ROW}, embedding_model, expires_at FROM search_traces
WHERE ({{org:String}} = '' OR org = {{org:String}}) AND ({{namespace:String}} = '' OR namespace = {{namespace:String}})
    AND asked_at >= {{since:DateTime64(3, 'UTC')}} AND expires_at > {{now:DateTime64(3, 'UTC')}}
    AND (org, namespace, asked_at, request_id) > {{after:Tuple(String, String, DateTime64(3, 'UTC'), String)}}
ORDER BY org, namespace, asked_at, request_id LIMIT {{limit:UInt32}}"""  # noqa: S608  (constants of this module)

_COUNT: Final = """SELECT count() FROM search_traces
WHERE ({org:String} = '' OR org = {org:String}) AND ({namespace:String} = '' OR namespace = {namespace:String})
    AND asked_at >= {since:DateTime64(3, 'UTC')} AND expires_at > {now:DateTime64(3, 'UTC')}"""

Place = tuple[str, str, datetime, str]
"""Where a reading goes on: behind this organisation, namespace, time and request."""


@dataclass(frozen=True, slots=True)
class SearchTrace:
    """One search that was asked.

    Attributes:
        request: The request as JSON, without whom it is of.
        found: What answered it, best first.
        embedding_model: The model that compared meanings; empty where none did.
    """

    scope: Scope
    asked_at: datetime
    request_id: str
    op: str
    subject: str
    user_id: str
    session_id: str
    query: str
    request: str
    found: tuple[Identity, ...]
    embedding_model: str
    expires_at: datetime

    @property
    def place(self) -> Place:
        """Where it stands among the others."""
        return self.scope.org, self.scope.namespace, self.asked_at, self.request_id


class SearchTraceRepository:
    """Owns the table `search_traces`."""

    def __init__(self, ch: ClickHouse) -> None:
        self._ch = ch

    async def insert(self, traces: Sequence[SearchTrace]) -> None:
        """Stores traces."""
        await self._ch.insert(TABLE, [_row(trace) for trace in traces])

    async def count(self, org: str, namespace: str, since: datetime, now: datetime) -> int:
        """Counts the traces since then; an empty organisation or namespace keeps all."""
        parameters = {"org": org, "namespace": namespace, "since": since, "now": now}
        return int((await self._ch.query(_COUNT, parameters)).scalar())

    async def since(
        self, org: str, namespace: str, since: datetime, now: datetime, *, after: Place | None, limit: int
    ) -> list[SearchTrace]:
        """Returns traces behind a place, by organisation, namespace, time and request."""
        parameters = {
            "org": org,
            "namespace": namespace,
            "since": since,
            "now": now,
            "after": after or ("", "", since, ""),
            "limit": limit,
        }
        rows = await self._ch.query(_SINCE, parameters)
        return [
            SearchTrace(
                scope=Scope(row[0], row[1]),
                asked_at=row[2],
                request_id=row[3],
                op=row[4],
                subject=row[5],
                user_id=row[6],
                session_id=row[7],
                query=row[8],
                request=row[9],
                found=tuple(Identity(*found) for found in row[10]),
                embedding_model=row[11],
                expires_at=row[12],
            )
            for row in rows
        ]


def _row(trace: SearchTrace) -> tuple[object, ...]:
    return (
        trace.scope.org,
        trace.scope.namespace,
        trace.asked_at,
        trace.request_id,
        trace.op,
        trace.subject,
        trace.user_id,
        trace.session_id,
        trace.query,
        trace.request,
        [tuple(identity) for identity in trace.found],
        trace.embedding_model,
        trace.expires_at,
    )
