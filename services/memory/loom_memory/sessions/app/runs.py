"""Recording runs of agents, and listing them."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final

from pydantic import JsonValue

from loom_common.call import Scope
from loom_common.clock import Clock
from loom_common.conditional_writes import Claims
from loom_common.errors import InvalidArgument
from loom_common.page_tokens import decode_page_token, encode_page_token
from loom_memory.app.access import own_filter
from loom_memory.domain.memory import Filter, to_milliseconds
from loom_memory.sessions.app.access import checked_text, own_session
from loom_memory.sessions.app.writers import Writers
from loom_memory.sessions.domain.runs import MAX_SUMMARY_BYTES, Recording, RunEntry, RunFilter, recorded
from loom_memory.sessions.store.runs import Behind, RunRepository, run_key

_EPOCH: Final = datetime.fromtimestamp(0, UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
# What a time may be, as the store has it.
_FIRST: Final = (datetime(1900, 1, 1, tzinfo=UTC) - _EPOCH) // _MILLISECOND
_LAST: Final = (datetime(2300, 1, 1, tzinfo=UTC) - _EPOCH) // _MILLISECOND


class Runs:
    """Keeps the manifest of runs. Every method keeps to what the running call's token may address."""

    def __init__(self, rows: RunRepository, clock: Clock, claims: Claims | None) -> None:
        self._rows = rows
        self._clock = clock
        self._writers = Writers("run", clock, claims)

    async def record(self, scope: Scope, asked: Recording) -> RunEntry:
        """Records a run, or what is new of one. Returns it as it is now.

        Raises:
            AuthInsufficient: Its user or session is not the token's own.
            InvalidArgument: A name or the summary is none, or it would end before it began.
        """
        asked = replace(asked, session=own_session(*asked.session), run_id=_named(asked.run_id))
        if asked.agent is not None:
            asked = replace(asked, agent=checked_text("agent", asked.agent))
        if asked.summary is not None:
            asked = replace(asked, summary=_summary(asked.summary))
        async with self._writers.alone(scope, run_key(asked.session, asked.run_id)) as writing:
            before = await self._rows.one(scope, asked.session, asked.run_id)
            try:
                run = recorded(before, asked, to_milliseconds(self._clock.now()))
            except ValueError as error:
                raise InvalidArgument.of("ended_at", str(error)) from error
            if before is None or replace(before, actor=run.actor, updated_at=run.updated_at) != run:
                await self._rows.insert(scope, run, writing.version())
                return run
        return before

    async def page(
        self, scope: Scope, wanted: RunFilter, page_size: int, page_token: str
    ) -> tuple[list[RunEntry], str]:
        """Returns a page of runs, the one that began last first, and the next page's token; empty on the last.

        Raises:
            AuthInsufficient: Another user's or session's runs are asked for than the token's own.
            InvalidArgument: The token is none of this list.
        """
        wanted = _own(wanted)
        query: dict[str, JsonValue] = {
            "op": "runs",
            "org": scope.org,
            "namespace": scope.namespace,
            "user_id": wanted.user_id,
            "session_id": wanted.session_id,
            "agent": wanted.agent,
            "status": wanted.status,
        }
        behind = _place(decode_page_token(page_token, query, (int, str)))
        found = await self._rows.page(scope, wanted, behind, page_size + 1)
        shown = found[:page_size]
        if len(found) <= page_size:
            return shown, ""
        last = shown[-1]
        place = (last.started_at - _EPOCH) // _MILLISECOND, run_key(last.session, last.run_id)
        return shown, encode_page_token(place, query)

    async def manifest(self, scope: Scope, limit: int) -> tuple[RunEntry, ...]:
        """Returns the runs that the running call may read, the one that began last first.

        Raises:
            AuthInsufficient: The token is narrowed to its user and names none.
        """
        return tuple(await self._rows.page(scope, _own(RunFilter()), None, limit))


def _own(wanted: RunFilter) -> RunFilter:
    own = own_filter(Filter(user_id=wanted.user_id, session_id=wanted.session_id))
    return replace(wanted, user_id=own.user_id, session_id=own.session_id)


def _named(run_id: str) -> str:
    name = checked_text("run_id", run_id)
    if not name:
        raise InvalidArgument.of("run_id", "must name the run, or the call must")
    if not name.isprintable():
        raise InvalidArgument.of("run_id", "must not hold control characters")
    return name


def _summary(text: str) -> str:
    summary = checked_text("summary", text)
    if len(summary.encode("utf-8", "surrogatepass")) > MAX_SUMMARY_BYTES:
        raise InvalidArgument.of("summary", f"must be at most {MAX_SUMMARY_BYTES} bytes of UTF-8")
    return summary


def _place(held: tuple[object, ...] | None) -> Behind | None:
    if held is None:
        return None
    at, key = held
    if not isinstance(at, int) or not isinstance(key, str) or not _FIRST <= at < _LAST:
        raise InvalidArgument.of("page_token", "must be the next_page_token of the page before, as it was given")
    return _EPOCH + at * _MILLISECOND, key
