"""Saving and reading what sessions leave behind."""

import logging
from dataclasses import dataclass
from typing import Final

from loom_common.call import Scope
from loom_common.clock import Clock
from loom_common.conditional_writes import Claims
from loom_common.errors import InvalidArgument, LoomError, Reason
from loom_memory.app.access import own_identity
from loom_memory.app.llm import LlmPort
from loom_memory.app.owned_items import readable_users
from loom_memory.conversations.store.conversations import ConversationRepository
from loom_memory.domain.fencing import fenced
from loom_memory.domain.memory import Identity, to_milliseconds
from loom_memory.domain.prompts.briefs import BRIEF
from loom_memory.sessions.app.access import checked_text, named_session, own_session
from loom_memory.sessions.app.writers import Writers
from loom_memory.sessions.domain.briefs import (
    MAX_BYTES,
    Composed,
    Left,
    Origin,
    Said,
    SessionBrief,
    compose,
    cut_to_bytes,
)
from loom_memory.sessions.domain.working import Session
from loom_memory.sessions.store.briefs import BriefRepository
from loom_memory.sessions.store.sources import SessionSources

logger = logging.getLogger(__name__)

_FEATURE: Final = "session.brief_save"
_TOKENS: Final = 600
# Whoever saves a brief ends a session; past this it is made by rule.
_TIMEOUT_S: Final = 30.0
_READ_MEMORIES: Final = 200
_READ_CONVERSATIONS: Final = 3
_READ_TURNS: Final = 12


@dataclass(frozen=True, slots=True)
class Saving:
    """What is saved; without a text one is made."""

    session: Session
    actor: str
    agent: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class _Made:
    """A text and where it comes from."""

    text: str
    origin: Origin
    model: str = ""
    memories: tuple[Identity, ...] = ()
    turns: int = 0


class LeftBehind:
    """Reads what a session left: its memories, and the ends of its newest conversations."""

    def __init__(self, sources: SessionSources, conversations: ConversationRepository, clock: Clock) -> None:
        self._sources = sources
        self._conversations = conversations
        self._clock = clock

    async def read(self, scope: Scope, session: Session) -> Left:
        """Returns what a session left that the running call may read; a token of one session reads no conversations."""
        memories = await self._sources.memories(scope, session, self._clock.now(), _READ_MEMORIES)
        turns: list[Said] = []
        # Their own ops show conversations by user, and to a token of one session none.
        if readable_users({session.user_id}):
            turns = await self._turns(scope, session)
        return Left(memories, turns)

    async def _turns(self, scope: Scope, session: Session) -> list[Said]:
        held = await self._conversations.page(
            scope, {session.user_id}, session.session_id, "", None, _READ_CONVERSATIONS
        )
        said: list[Said] = []
        for one in reversed(held):
            _, last = await self._conversations.extent(scope, one)
            turns = await self._conversations.turns(scope, one, max(0, last - _READ_TURNS), _READ_TURNS)
            said += [Said(turn.author or turn.role or "someone", turn.text, turn.at) for turn in turns]
        return said


class SessionBriefs:
    """Keeps the briefs of sessions, every version of them.

    Args:
        llm: Writes briefs that no caller writes; None where they are made by rule alone.
        model: Model to ask; None for the served one.
    """

    def __init__(
        self,
        rows: BriefRepository,
        left: LeftBehind,
        llm: LlmPort | None,
        model: str | None,
        clock: Clock,
        claims: Claims | None,
    ) -> None:
        self._rows = rows
        self._left = left
        self._llm = llm
        self._model = model
        self._clock = clock
        self._writers = Writers("session_brief", clock, claims)

    async def save(self, scope: Scope, asked: Saving) -> tuple[SessionBrief | None, bool]:
        """Saves a brief. Returns the current one, None where there is nothing to make one of, and whether it is new.

        Raises:
            AuthInsufficient: The session is not the token's own.
            InvalidArgument: No session is named, or the text is too long.
        """
        session = named_session(*asked.session)
        text = checked_text("text", asked.text)
        if len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
            raise InvalidArgument.of("text", f"must be at most {MAX_BYTES} bytes of UTF-8")
        made = _Made(text, Origin.GIVEN) if text else await self._made(scope, session)
        if made is None:
            return await self._rows.one(scope, session), False
        async with self._writers.alone(scope, *session) as writing:
            newest = await self._rows.one(scope, session)
            if newest is not None and (newest.text, newest.origin) == (made.text, made.origin):
                return newest, False
            brief = SessionBrief(
                session,
                asked.agent,
                made.text,
                1 if newest is None else newest.version + 1,
                made.origin,
                made.model,
                made.memories,
                made.turns,
                asked.actor,
                to_milliseconds(self._clock.now()),
            )
            await self._rows.insert(scope, brief, writing.version())
        return brief, True

    async def get(self, scope: Scope, user_id: str, session_id: str, version: int | None) -> SessionBrief | None:
        """Returns a version of a session's brief, or the newest of the user's where no session is named.

        Raises:
            AuthInsufficient: The session is not the token's own.
            InvalidArgument: A version is named, and no session.
        """
        session = own_session(user_id, session_id)
        if session.session_id:
            return await self._rows.one(scope, session, version)
        if version is not None:
            raise InvalidArgument.of("version", "needs session_id")
        return next(iter(await self.latest(scope, session.user_id, 1)), None)

    async def latest(self, scope: Scope, user_id: str, limit: int) -> tuple[SessionBrief, ...]:
        """Returns the newest briefs of a user's sessions, one of each, the one that was saved last first.

        A token of one session gets its own alone.

        Raises:
            AuthInsufficient: The user is not the token's own.
        """
        own = own_identity(Identity("", user_id, ""))
        if own.session_id:
            one = await self._rows.one(scope, Session(own.user_id, own.session_id))
            return () if one is None else (one,)
        return tuple(await self._rows.latest(scope, own.user_id, limit))

    async def _made(self, scope: Scope, session: Session) -> _Made | None:
        left = await self._left.read(scope, session)
        if left.is_empty:
            return None
        composed = compose(left)
        if self._llm is not None and (written := await self._written(self._llm, composed)) is not None:
            return written
        return _Made(composed.text, Origin.COMPOSED, "", composed.memories, composed.turns)

    async def _written(self, llm: LlmPort, composed: Composed) -> _Made | None:
        """Returns what a model makes of a brief that was made by rule; None where it makes nothing."""
        try:
            if (await llm.served()).fake:
                return None
            answer = await llm.complete(
                BRIEF.text,
                fenced("session", composed.text),
                max_tokens=_TOKENS,
                feature=_FEATURE,
                model=self._model,
                prompt=BRIEF,
                timeout_s=_TIMEOUT_S,
            )
        except LoomError as error:
            if error.reason is Reason.CANCELLED:
                raise
            logger.warning("session_brief_by_rule", extra={"reason": error.reason.value})
            return None
        text = cut_to_bytes(answer.text.replace("\x00", "").strip(), MAX_BYTES)
        if answer.fake or not text or answer.stop_reason == "refusal":
            return None
        return _Made(text, Origin.MODEL, answer.model, composed.memories, composed.turns)
