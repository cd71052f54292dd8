"""The tables `conversations` and `conversation_turns`."""

# ruff: noqa: S608  (what is put together are constants of this package; every value is bound)

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Final

from loom_common.call import Scope
from loom_common.clickhouse import ClickHouse, Row, Table, own_write_reads
from loom_memory.conversations.domain.conversations import Conversation, TitledBy, Turn
from loom_memory.domain.analyzer import analyze_text
from loom_memory.store.filters import IN_SCOPE, in_scope

_TIME: Final = "DateTime64(3, 'UTC')"
CONVERSATIONS: Final = Table.of(
    "conversations",
    org="LowCardinality(String)",
    namespace="LowCardinality(String)",
    conversation_id="String",
    user_id="String",
    session_id="String",
    agent="String",
    title="String",
    titled_by="LowCardinality(String)",
    turn_count="UInt32",
    actor="String",
    created_at=_TIME,
    updated_at=_TIME,
    life="UInt64",
    tombstoned_at=f"Nullable({_TIME})",
    version="UInt64",
)
TURNS: Final = Table.of(
    "conversation_turns",
    org="LowCardinality(String)",
    namespace="LowCardinality(String)",
    conversation_id="String",
    turn_id="String",
    turn_index="UInt32",
    author="String",
    role="LowCardinality(String)",
    text="String",
    term_ids="Array(UInt32)",
    at=_TIME,
    user_id="String",
    session_id="String",
    agent="String",
    actor="String",
    created_at=_TIME,
    life="UInt64",
    tombstoned_at=f"Nullable({_TIME})",
    version="UInt64",
)

LIVE: Final = "tombstoned_at IS NULL"
"""Keeps the conversations that are there; a turn also has to be of the present life of its conversation."""

_OF_USERS: Final = "(NOT {of_users:Bool} OR has({users:Array(String)}, user_id))"
_COLUMNS: Final = (
    "conversation_id, user_id, session_id, agent, title, titled_by, turn_count, actor, created_at, updated_at, life, "
    "tombstoned_at, version"
)
_TURN: Final = (
    "conversation_id, turn_id, turn_index, author, role, text, at, user_id, session_id, agent, actor, created_at, life"
)
_PRESENT: Final = f"(SELECT conversation_id, life FROM conversations FINAL WHERE {IN_SCOPE} AND {LIVE})"
_SHOWN: Final = f"{IN_SCOPE} AND {LIVE} AND {_OF_USERS}"

_ONE: Final = f"""SELECT {_COLUMNS} FROM conversations FINAL
WHERE {IN_SCOPE} AND conversation_id = {{id:String}} ORDER BY conversation_id LIMIT 1"""
_TITLES: Final = f"""SELECT {_COLUMNS} FROM conversations FINAL
WHERE {IN_SCOPE} AND conversation_id IN {{ids:Array(String)}} AND {LIVE} ORDER BY conversation_id"""
# Newest first; `behind` is where the page before ended.
_PAGE: Final = f"""SELECT {_COLUMNS} FROM conversations FINAL
WHERE {_SHOWN} AND ({{session:String}} = '' OR session_id = {{session:String}})
    AND ({{agent:String}} = '' OR agent = {{agent:String}})
    AND (NOT {{is_behind:Bool}}
        OR (updated_at, conversation_id) < ({{behind_at:DateTime64(3, 'UTC')}}, {{behind:String}}))
ORDER BY updated_at DESC, conversation_id DESC LIMIT {{limit:UInt32}}"""
_UNTITLED: Final = f"""SELECT org, namespace, {_COLUMNS} FROM conversations FINAL
WHERE {LIVE} AND titled_by = 'first_turn' AND turn_count >= {{least:UInt32}} AND NOT has({{off:Array(String)}}, org)
    AND (org, namespace, conversation_id) NOT IN {{held:Array(Tuple(String, String, String))}}
ORDER BY updated_at DESC, org, namespace, conversation_id LIMIT {{limit:UInt32}}"""

_OF_CONVERSATION: Final = f"{IN_SCOPE} AND conversation_id = {{id:String}} AND life = {{life:UInt64}} AND {LIVE}"
_PAGE_OF_TURNS: Final = f"""SELECT {_TURN} FROM conversation_turns FINAL
WHERE {_OF_CONVERSATION} AND turn_index > {{behind:UInt32}} ORDER BY turn_index, turn_id LIMIT {{limit:UInt32}}"""
_KNOWN: Final = f"""SELECT {_TURN} FROM conversation_turns FINAL
WHERE {_OF_CONVERSATION} AND turn_id IN {{turns:Array(String)}} ORDER BY turn_id"""
_LAST: Final = f"SELECT count(), max(turn_index) FROM conversation_turns FINAL WHERE {_OF_CONVERSATION}"
_ALL: Final = f"""SELECT {_TURN} FROM conversation_turns FINAL
WHERE {IN_SCOPE} AND conversation_id = {{id:String}} AND {LIVE} ORDER BY turn_id"""

_IN: Final = "({conversation:String} = '' OR conversation_id = {conversation:String})"
_BY: Final = "({author:String} = '' OR author = {author:String})"
_FOUND: Final = f"""SELECT {_TURN} FROM conversation_turns FINAL
WHERE {_SHOWN} AND {_IN} AND {_BY} AND (conversation_id, turn_id) IN {{places:Array(Tuple(String, String))}}
    AND (conversation_id, life) IN {_PRESENT}
ORDER BY conversation_id, turn_id"""
_WITH_WORDS: Final = f"""SELECT {_TURN} FROM conversation_turns FINAL
WHERE {_SHOWN} AND {_IN} AND {_BY} AND hasAny(term_ids, {{terms:Array(UInt32)}})
    AND (conversation_id, life) IN {_PRESENT}
ORDER BY length(arrayIntersect(term_ids, {{terms:Array(UInt32)}})) DESC, at DESC, conversation_id, turn_id
LIMIT {{limit:UInt32}}"""
_ANY: Final = f"SELECT count() FROM conversations FINAL WHERE {_SHOWN}"

Place = tuple[str, str]
"""A conversation and one of its turns."""


class ConversationRepository:
    """Owns both tables; no other class names them."""

    def __init__(self, ch: ClickHouse) -> None:
        self._ch = ch
        self._reads = {"max_threads": 1, **own_write_reads(ch)}

    async def put(self, scope: Scope, one: Conversation, version: int) -> None:
        """Stores a conversation as it is now; every read that begins later sees it."""
        gone_at = one.updated_at if one.is_removed else None
        row = (
            scope.org, scope.namespace, one.id, one.user_id, one.session_id, one.agent, one.title, one.titled_by.value,
            one.turns, one.actor, one.created_at, one.updated_at, one.life, gone_at, version,
        )  # fmt: skip
        await self._ch.insert(CONVERSATIONS, [row])

    async def put_turns(
        self, scope: Scope, turns: Iterable[Turn], version: int, gone_at: datetime | None = None
    ) -> None:
        """Stores turns, or that they are gone."""
        rows = [
            (
                scope.org, scope.namespace, one.conversation_id, one.id, one.index, one.author, one.role, one.text,
                [] if gone_at else analyze_text(one.text).term_ids, one.at, one.user_id, one.session_id, one.agent,
                one.actor, one.created_at, one.life, gone_at, version,
            )
            for one in turns
        ]  # fmt: skip
        if rows:
            await self._ch.insert(TURNS, rows)

    async def newest(self, scope: Scope, conversation_id: str) -> Conversation | None:
        """Returns a conversation as it is now, one that was deleted too."""
        rows = await self._ch.query(_ONE, {**in_scope(scope), "id": conversation_id}, settings=self._reads)
        return next(iter(_conversations(list(rows))), None)

    async def by_ids(self, scope: Scope, ids: Collection[str]) -> dict[str, Conversation]:
        """Returns conversations that are there."""
        rows = await self._ch.query(_TITLES, {**in_scope(scope), "ids": sorted(ids)}, settings=self._reads)
        return {one.id: one for one in _conversations(list(rows))}

    async def page(
        self,
        scope: Scope,
        users: Collection[str] | None,
        session_id: str,
        agent: str,
        behind: tuple[datetime, str] | None,
        limit: int,
    ) -> list[Conversation]:
        """Returns conversations, the one that was added to last first; None keeps every user's."""
        parameters = {
            **in_scope(scope), **_users(users), "session": session_id, "agent": agent, "is_behind": behind is not None,
            "behind_at": behind[0] if behind else datetime.fromtimestamp(0).astimezone(),
            "behind": behind[1] if behind else "", "limit": limit,
        }  # fmt: skip
        return _conversations(list(await self._ch.query(_PAGE, parameters, settings=self._reads)))

    async def untitled(
        self, off: Collection[str], held: Collection[tuple[Scope, str]], least: int, limit: int
    ) -> list[tuple[Scope, Conversation]]:
        """Returns conversations of at least so many turns that no model has titled, the newest first."""
        left_out = sorted((scope.org, scope.namespace, name) for scope, name in held)
        parameters = {"off": sorted(off), "held": left_out, "least": least, "limit": limit}
        rows = list(await self._ch.query(_UNTITLED, parameters, settings=self._reads))
        scopes = [Scope(row[0], row[1]) for row in rows]
        return list(zip(scopes, _conversations([row[2:] for row in rows]), strict=True))

    async def turns(self, scope: Scope, one: Conversation, behind: int, limit: int) -> list[Turn]:
        """Returns turns of a conversation behind a place, in their order."""
        parameters = {**in_scope(scope), "id": one.id, "life": one.life, "behind": behind, "limit": limit}
        return _turns(list(await self._ch.query(_PAGE_OF_TURNS, parameters, settings=self._reads)))

    async def known(self, scope: Scope, one: Conversation, ids: Collection[str]) -> dict[str, Turn]:
        """Returns those turns of a conversation that are there, by identifier."""
        parameters = {**in_scope(scope), "id": one.id, "life": one.life, "turns": sorted(ids)}
        rows = list(await self._ch.query(_KNOWN, parameters, settings=self._reads))
        return {turn.id: turn for turn in _turns(rows)}

    async def extent(self, scope: Scope, one: Conversation) -> tuple[int, int]:
        """Returns how many turns a conversation has, and the last one's place."""
        parameters = {**in_scope(scope), "id": one.id, "life": one.life}
        [row] = await self._ch.query(_LAST, parameters, settings=self._reads)
        return int(row[0]), int(row[1])

    async def of_every_life(self, scope: Scope, conversation_id: str) -> list[Turn]:
        """Returns the turns of a conversation that are not gone, of whatever life."""
        rows = await self._ch.query(_ALL, {**in_scope(scope), "id": conversation_id}, settings=self._reads)
        return _turns(list(rows))

    async def found(
        self, scope: Scope, places: Collection[Place], users: Collection[str] | None, conversation: str, author: str
    ) -> list[Turn]:
        """Returns those of these turns that are shown."""
        if not places:
            return []
        parameters = {
            **in_scope(scope),
            **_users(users),
            "places": sorted(places),
            "conversation": conversation,
            "author": author,
        }
        return _turns(list(await self._ch.query(_FOUND, parameters, settings=self._reads)))

    async def with_words(
        self,
        scope: Scope,
        terms: Collection[int],
        users: Collection[str] | None,
        conversation: str,
        author: str,
        limit: int,
    ) -> list[Turn]:
        """Returns shown turns that hold any of these terms, those with most of them first."""
        if not terms:
            return []
        parameters = {
            **in_scope(scope), **_users(users), "terms": sorted(terms), "conversation": conversation, "author": author,
            "limit": limit,
        }  # fmt: skip
        return _turns(list(await self._ch.query(_WITH_WORDS, parameters, settings=self._reads)))

    async def is_empty(self, scope: Scope, users: Collection[str] | None) -> bool:
        """Says whether a namespace holds no conversation of these users."""
        rows = await self._ch.query(_ANY, {**in_scope(scope), **_users(users)}, settings=self._reads)
        return int(rows.scalar()) == 0


def _users(users: Collection[str] | None) -> dict[str, object]:
    return {"of_users": users is not None, "users": sorted(users or ())}


def _conversations(rows: Sequence[Row]) -> list[Conversation]:
    return [
        Conversation(
            row[0], row[1], row[2], row[3], row[4], TitledBy(row[5]), row[6], row[7], row[8], row[9], row[10],
            is_removed=row[11] is not None, row_version=row[12],
        )
        for row in rows
    ]  # fmt: skip


def _turns(rows: Sequence[Row]) -> list[Turn]:
    return [Turn(*row) for row in rows]
