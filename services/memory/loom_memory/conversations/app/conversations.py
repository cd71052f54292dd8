"""Keeping conversations: turns are added once each, and never changed."""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Final

from loom_common.call import Scope
from loom_common.clock import Clock, MonotonicVersions
from loom_common.conditional_writes import Claims, Hold, claim_name
from loom_common.errors import InvalidArgument
from loom_common.ids import new_id
from loom_common.local_locks import KeyedLocks
from loom_common.times import format_time
from loom_memory.app.item_vectors import ItemVectors
from loom_memory.app.owned_items import readable_users
from loom_memory.conversations.domain.conversations import (
    PLANE,
    Conversation,
    TitledBy,
    Turn,
    derived_turn_id,
    passages,
    title_of,
    vector_id,
)
from loom_memory.conversations.store.conversations import ConversationRepository
from loom_memory.conversations.store.sources import MadeOfConversations
from loom_memory.domain.memory import Identity, to_milliseconds
from loom_memory.store.item_vectors import ItemVector

MAX_TEXT_BYTES: Final = 65_536
"""Longest turn, in UTF-8. Source: the design, as for memories."""


class Outcome(StrEnum):
    """What became of one turn of a call."""

    STORED = "stored"
    REPEATED = "repeated"
    """It was there already, with the same words."""
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Said:
    """One turn as a caller gives it; without an identifier it gets one, and with a `why` it is refused."""

    text: str
    author: str = ""
    role: str = ""
    at: datetime | None = None
    id: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class Appending:
    """What is added, to which conversation.

    Attributes:
        title: The caller's own; empty for one that is made.
    """

    conversation_id: str
    turns: Sequence[Said]
    actor: str
    user_id: str = ""
    session_id: str = ""
    agent: str = ""
    title: str = ""


@dataclass(frozen=True, slots=True)
class Appended:
    """What became of one turn; `why` says what to do where it was refused."""

    turn_id: str
    outcome: Outcome
    index: int = 0
    why: str = ""


class Conversations:
    """Adds to conversations, reads them and deletes them.

    The conversation's own row is stored first and again last, and vectors before turns: an append that is killed
    between leaves turns that are there whole, and the same call again adds those that are missing.

    Args:
        claims: Puts writers of several processes in order; None where this process alone writes.
    """

    def __init__(
        self,
        rows: ConversationRepository,
        made: MadeOfConversations,
        vectors: ItemVectors,
        clock: Clock,
        claims: Claims | None,
    ) -> None:
        self._rows = rows
        self._made = made
        self._vectors = vectors
        self._clock = clock
        self._claims = claims
        self._locks = KeyedLocks()
        self._versions = MonotonicVersions(clock)

    async def append(self, scope: Scope, asked: Appending) -> tuple[Conversation, list[Appended]]:
        """Adds turns, each once whatever is repeated. Returns the conversation and what became of each turn.

        Raises:
            InvalidArgument: The conversation is another user's, or its name holds NUL characters.
        """
        name = asked.conversation_id or new_id()
        for field, text in (("conversation_id", name), ("title", asked.title)):
            if "\x00" in text:
                raise InvalidArgument.of(field, "must not hold NUL characters")
        async with self._alone(scope, name) as hold:
            newest = await self._newest(scope, name)
            now = to_milliseconds(self._clock.now())
            conversation = self._begun(newest, name, asked, now)
            is_new = newest is None or newest.is_removed
            named = [self._named(name, said, now) for said in asked.turns]
            known = {} if is_new else await self._rows.known(scope, conversation, [one.id for one in named])
            _, last = (0, 0) if is_new else await self._rows.extent(scope, conversation)
            fresh, outcomes = _sorted_out(conversation, named, known, asked.actor, last, now)
            if is_new and not fresh:
                return conversation, outcomes
            if is_new:
                await self._put(scope, conversation, hold)
            await self._store(scope, fresh, hold)
            count, _ = await self._rows.extent(scope, conversation)
            changed = _grown(conversation, asked, fresh, count, now)
            if changed != newest:
                await self._put(scope, changed, hold)
            if hold is not None:
                await hold.confirm()
        return changed, outcomes

    async def get(
        self, scope: Scope, conversation_id: str, behind: int, limit: int
    ) -> tuple[Conversation, list[Turn]] | None:
        """Returns a conversation that the running call may read, with turns behind a place; None for none."""
        one = await self._rows.newest(scope, conversation_id)
        if one is None or one.is_removed or not _is_readable(one):
            return None
        return one, await self._rows.turns(scope, one, behind, limit)

    async def memories(self, scope: Scope, conversation_id: str, limit: int) -> list[tuple[Identity, str]]:
        """Returns memories that the running call may read and that were taken from a conversation, with their turns."""
        users = readable_users(None)
        if users is not None and not users:
            return []
        return await self._made.memories(scope, conversation_id, users, self._clock.now(), limit)

    async def page(
        self,
        scope: Scope,
        user_id: str,
        session_id: str,
        agent: str,
        behind: tuple[datetime, str] | None,
        limit: int,
    ) -> list[Conversation]:
        """Returns conversations that the running call may read, the one that was added to last first."""
        users = readable_users({user_id} if user_id else None)
        if users is not None and not users:
            return []
        return await self._rows.page(scope, users, session_id, agent, behind, limit)

    async def delete(self, scope: Scope, conversation_id: str, actor: str) -> bool:
        """Deletes a conversation, and says whether there was one that the running call may write.

        Its own row goes first, which hides every turn at once.
        """
        async with self._alone(scope, conversation_id) as hold:
            newest = await self._newest(scope, conversation_id)
            if newest is None or not _is_readable(newest):
                return False
            now, number = to_milliseconds(self._clock.now()), self._number(hold)
            gone = replace(newest, title="", turns=0, actor=actor, updated_at=now, is_removed=True)
            # Also of one that is gone already: a deletion that was killed is finished by the next. All in one number,
            # so that whoever begins the conversation again is above its turns as well.
            await self._rows.put(scope, gone, number)
            turns = await self._rows.of_every_life(scope, conversation_id)
            await self._vectors.write(
                scope, [vector for turn in turns for vector in _vectors(replace(turn, actor=actor), now)]
            )
            blank = [replace(turn, text="", author="", actor=actor) for turn in turns]
            await self._rows.put_turns(scope, blank, number, gone_at=now)
            if hold is not None:
                await hold.confirm()
        return not newest.is_removed

    async def retitle(self, scope: Scope, conversation_id: str, title: str, expected: Conversation) -> bool:
        """Gives a conversation a model's title, if it is as it was when the model was asked."""
        async with self._alone(scope, conversation_id) as hold:
            newest = await self._newest(scope, conversation_id)
            told = expected.life, expected.titled_by
            if newest is None or newest.is_removed or (newest.life, newest.titled_by) != told:
                return False
            await self._put(scope, replace(newest, title=title, titled_by=TitledBy.MODEL), hold)
            if hold is not None:
                await hold.confirm()
        return True

    def _begun(self, newest: Conversation | None, name: str, asked: Appending, now: datetime) -> Conversation:
        if newest is not None and not newest.is_removed:
            if newest.user_id != asked.user_id:
                raise InvalidArgument.of("conversation_id", "names a conversation of another user")
            return newest
        return Conversation(
            name, asked.user_id, asked.session_id, asked.agent, "", TitledBy.NOBODY, 0, asked.actor, now, now,
            self._versions.next(),
        )  # fmt: skip

    def _named(self, conversation_id: str, said: Said, now: datetime) -> Said:
        """Returns a turn with an identifier and a time."""
        if said.id:
            return replace(said, at=said.at or now)
        if said.at is None:
            # Said at no known moment, the same words may well be said twice.
            return replace(said, id=new_id(), at=now)
        name = derived_turn_id(conversation_id, said.author, said.role, format_time(said.at), said.text)
        return replace(said, id=name)

    async def _store(self, scope: Scope, fresh: Sequence[Turn], hold: Hold | None) -> None:
        if not fresh:
            return
        await self._vectors.write(scope, [vector for turn in fresh for vector in _vectors(turn, None)])
        await self._rows.put_turns(scope, fresh, self._number(hold))

    async def _put(self, scope: Scope, one: Conversation, hold: Hold | None) -> None:
        await self._rows.put(scope, one, self._number(hold))

    async def _newest(self, scope: Scope, conversation_id: str) -> Conversation | None:
        """Returns a conversation for its writer, whose numbers are above its own from here on."""
        newest = await self._rows.newest(scope, conversation_id)
        if newest is not None:
            self._versions.next(after=newest.row_version)
        return newest

    def _number(self, hold: Hold | None) -> int:
        """Returns a version above all that were stored before, also by one whose clock was ahead."""
        number = self._versions.next()
        return number if hold is None else hold.version_after(number)

    @asynccontextmanager
    async def _alone(self, scope: Scope, name: str) -> AsyncIterator[Hold | None]:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._locks.one((scope, name)))
            if self._claims is None:
                yield None
            else:
                claim = claim_name("conversation", scope.org, scope.namespace, name)
                yield await stack.enter_async_context(self._claims.hold(claim))


def _sorted_out(
    conversation: Conversation,
    named: Sequence[Said],
    known: Mapping[str, Turn],
    actor: str,
    last: int,
    now: datetime,
) -> tuple[list[Turn], list[Appended]]:
    """Returns the turns that are new, and what became of each."""
    fresh: dict[str, Turn] = {}
    outcomes = []
    for said in named:
        held = known.get(said.id) or fresh.get(said.id)
        if why := _wrong_with(said):
            outcomes.append(Appended(said.id, Outcome.REFUSED, why=why))
        elif held is not None and (held.text, held.author, held.role) == (said.text, said.author, said.role):
            outcomes.append(Appended(said.id, Outcome.REPEATED, held.index))
        elif held is not None:
            outcomes.append(
                Appended(said.id, Outcome.REFUSED, held.index, "Another turn has this identifier; name this one anew.")
            )
        else:
            turn = Turn(
                conversation.id, said.id, last + len(fresh) + 1, said.author, said.role, said.text, said.at or now,
                conversation.user_id, conversation.session_id, conversation.agent, actor, now, conversation.life,
            )  # fmt: skip
            fresh[turn.id] = turn
            outcomes.append(Appended(said.id, Outcome.STORED, turn.index))
    return list(fresh.values()), outcomes


def _wrong_with(said: Said) -> str:
    if said.why:
        return said.why
    if not said.text.strip():
        return "The turn holds no text."
    if any("\x00" in text for text in (said.text, said.author, said.id)):
        return "A turn must not hold NUL characters."
    size = len(said.text.encode("utf-8", "surrogatepass"))
    if size > MAX_TEXT_BYTES:
        return f"The turn has {size} bytes; {MAX_TEXT_BYTES} are taken. Send it in parts."
    return ""


def _grown(
    conversation: Conversation, asked: Appending, fresh: Sequence[Turn], count: int, now: datetime
) -> Conversation:
    """Returns the conversation with what was added to it."""
    grown = replace(conversation, turns=count)
    if fresh:
        grown = replace(grown, actor=asked.actor, updated_at=now)
    if asked.title and asked.title != grown.title:
        return replace(grown, title=asked.title, titled_by=TitledBy.CALLER, updated_at=now)
    if not grown.title and fresh:
        return replace(grown, title=title_of(fresh[0].text), titled_by=TitledBy.FIRST_TURN)
    return grown


def _vectors(turn: Turn, gone_at: datetime | None) -> list[ItemVector]:
    return [
        ItemVector(
            # Whose turn it is stands where other planes name an agent.
            PLANE, vector_id(turn.conversation_id, turn.id, number), turn.user_id, turn.author,
            "" if gone_at else passage, turn.actor, gone_at or turn.created_at, 0, tombstoned_at=gone_at,
        )
        for number, passage in enumerate(passages(turn.text))
    ]  # fmt: skip


def _is_readable(one: Conversation) -> bool:
    users: Collection[str] | None = readable_users(None)
    return users is None or one.user_id in users
