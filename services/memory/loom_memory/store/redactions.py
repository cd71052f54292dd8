"""Replacing a text in every stored version of a memory."""

# ruff: noqa: S608  (what is put together are constants of this package; every value is bound)

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from loom_common.call import Scope
from loom_common.clickhouse import ClickHouse, StatementFailed, own_write_reads
from loom_common.erasure import Subject, bound_in
from loom_common.errors import InvalidArgument, LoomError
from loom_common.safe_patterns import PatternRefused, SafePattern
from loom_memory.domain.memory import Identity, Memory
from loom_memory.store.filters import IN_SCOPE, in_scope

_ONE: Final = f"""{IN_SCOPE} AND memory_key = {{key:String}} AND user_id = {{user_id:String}}
    AND session_id = {{session_id:String}}"""
_ERASED: Final = "{memories:Array(Tuple(String, String, String, String))}"
_OF_SUBJECT: Final = f"""org = {{org:String}} AND (namespace, memory_key, user_id, session_id) IN {_ERASED}
    AND version <= {{upto:UInt64}}"""

# Letters, and expressions: the two forms of everything below.
_TEXT_IN: Final = "position({0}, {{text:String}}) > 0"
_MATCH_IN: Final = "match({0}, {{regex:String}})"
_TEXT_GONE: Final = "replaceAll({0}, {{text:String}}, {{replacement:String}})"
# By way of a mark: in a replacement of its own an expression would look for groups, which no escape keeps it from.
_MATCH_GONE: Final = """replaceAll(replaceRegexpAll({0}, {{regex:String}}, {{mark:String}}),
    {{mark:String}}, {{replacement:String}})"""


_TEXTS: Final = ("value", "speaker", "source", "agent")
_LISTS: Final = ("tags", "labels", "derived_from")


def _holds(found: str) -> str:
    """Returns whether a row holds the text anywhere."""
    fields = [found.format(name) for name in _TEXTS]
    fields += [f"arrayExists(one -> {found.format('one')}, {name})" for name in _LISTS]
    return f"({' OR '.join(fields)})"


def _without(gone: str, name: str) -> str:
    """Returns a list without the text; a label of nothing is none."""
    return f"arrayFilter(one -> one != '', arrayMap(one -> {gone.format('one')}, {name}))"


def _assignments(gone: str) -> str:
    """Returns the assignments that take it out of a row."""
    fields = [f"{name} = {gone.format(name)}" for name in _TEXTS]
    return ", ".join([*fields, *(f"{name} = {_without(gone, name)}" for name in _LISTS)])


def _selected(gone: str) -> str:
    fields = [gone.format(f"{{{name}:String}}") for name in _TEXTS]
    return ", ".join([*fields, *(_without(gone, f"{{{name}:Array(String)}}") for name in _LISTS)])


_TEXT_HELD, _MATCH_HELD = _holds(_TEXT_IN), _holds(_MATCH_IN)
_TEXT_SET, _MATCH_SET = _assignments(_TEXT_GONE), _assignments(_MATCH_GONE)
_TEXT_SELECT, _MATCH_SELECT = f"SELECT {_selected(_TEXT_GONE)}", f"SELECT {_selected(_MATCH_GONE)}"

_REWRITE_TEXT: Final = f"""ALTER TABLE memory_versions UPDATE {_TEXT_SET}
WHERE {_OF_SUBJECT} AND {_TEXT_HELD}"""
_REWRITE_MATCH: Final = f"""ALTER TABLE memory_versions UPDATE {_MATCH_SET}
WHERE {_OF_SUBJECT} AND {_MATCH_HELD}"""
_COUNT_TEXT: Final = f"SELECT count() FROM memory WHERE {_OF_SUBJECT} AND {_TEXT_HELD}"
_COUNT_MATCH: Final = f"SELECT count() FROM memory WHERE {_OF_SUBJECT} AND {_MATCH_HELD}"
_COUNT_VERSIONS_TEXT: Final = f"SELECT count() FROM memory_versions WHERE {_OF_SUBJECT} AND {_TEXT_HELD}"
_COUNT_VERSIONS_MATCH: Final = f"SELECT count() FROM memory_versions WHERE {_OF_SUBJECT} AND {_MATCH_HELD}"
_COUNT_VECTORS: Final = f"""SELECT count() FROM memory_embeddings WHERE {_OF_SUBJECT}
    AND (namespace, memory_key, user_id, session_id, version) NOT IN (
        SELECT namespace, memory_key, user_id, session_id, version FROM memory FINAL
        WHERE org = {{org:String}} AND (namespace, memory_key, user_id, session_id) IN {_ERASED})"""

_OLDER: Final = f"{_ONE} AND version < {{version:UInt64}}"
_REMOVE_ROWS: Final = f"ALTER TABLE memory DELETE WHERE {_OLDER}"
_REMOVE_VECTORS: Final = f"ALTER TABLE memory_embeddings DELETE WHERE {_OLDER}"
_CHECK: Final = """SELECT match('', {regex:String}),
    arrayExists(name -> match(name, {regex:String}), {names:Array(String)})"""

_GONE: Final = {"mutations_sync": 2}
_TIMEOUT_S: Final = 270.0


@dataclass(frozen=True, slots=True)
class Replacement:
    """What is replaced: letters, or where these are empty the matches of an expression, and by what."""

    text: str
    regex: str
    by: str

    @property
    def parameters(self) -> dict[str, object]:
        """What statements bind."""
        bound = {"text": self.text} if self.text else {"regex": self.regex, "mark": f"\u2060{uuid.uuid4()}\u2060"}
        return {**bound, "replacement": self.by}


class RedactionRepository:
    """Replaces texts in `memory_versions`, and removes rows of `memory` and `memory_embeddings` that held them."""

    def __init__(self, ch: ClickHouse) -> None:
        self._ch = ch
        self._reads = own_write_reads(ch)

    async def check(self, regex: str, names: Sequence[str]) -> bool:
        """Says whether an expression matches one of some names.

        Raises:
            InvalidArgument: It is no expression, or would match everywhere.
        """
        try:
            # The store takes some texts for plain words here that it refuses where it replaces.
            SafePattern(regex)
        except PatternRefused as error:
            raise InvalidArgument.of("regex", "is no expression in the syntax of RE2") from error
        try:
            rows = await self._ch.query(_CHECK, {"regex": regex, "names": list(names)})
            matches_nothing, in_names = rows.rows[0]
        except LoomError as error:
            if isinstance(error.__cause__, StatementFailed) and error.__cause__.name == "CANNOT_COMPILE_REGEXP":
                raise InvalidArgument.of("regex", "is no expression in the syntax of RE2") from error
            raise
        if matches_nothing:
            raise InvalidArgument.of("regex", "matches the empty text, and so everywhere")
        return bool(in_names)

    async def redacted(self, memory: Memory, gone: Replacement) -> Memory:
        """Returns a memory with the text replaced; the same where it does not hold it."""
        content = memory.content
        parameters = {
            **gone.parameters,
            **{name: getattr(content, name) for name in _TEXTS},
            "tags": list(content.tags),
            "labels": list(memory.labels),
            "derived_from": list(memory.derived_from),
        }
        sql = _TEXT_SELECT if gone.text else _MATCH_SELECT
        value, speaker, source, agent, tags, labels, derived_from = (await self._ch.query(sql, parameters)).rows[0]
        changed = replace(
            memory,
            content=replace(content, value=value, speaker=speaker, source=source, agent=agent, tags=tuple(tags)),
            labels=tuple(labels),
            derived_from=tuple(derived_from),
        )
        return memory if changed == memory else changed

    async def rewrite_versions(self, subject: Subject, gone: Replacement) -> None:
        """Replaces the text in the versions of named memories."""
        sql = _REWRITE_TEXT if gone.text else _REWRITE_MATCH
        parameters = bound_in(sql, subject, **gone.parameters)
        await self._ch.command(sql, parameters, settings=_GONE, timeout_s=_TIMEOUT_S)

    async def remove_older(self, scope: Scope, identity: Identity, version: int) -> None:
        """Removes the rows and vectors of a memory that are older than the version that is shown."""
        parameters = {**in_scope(scope), **identity._asdict(), "version": version}
        for sql in (_REMOVE_ROWS, _REMOVE_VECTORS):
            await self._ch.command(sql, parameters, settings=_GONE, timeout_s=_TIMEOUT_S)

    async def remaining(self, subject: Subject, gone: Replacement) -> dict[str, int]:
        """Counts rows that still hold the text, or are made of it, by table."""
        statements = {
            "memory": _COUNT_TEXT if gone.text else _COUNT_MATCH,
            "memory_versions": _COUNT_VERSIONS_TEXT if gone.text else _COUNT_VERSIONS_MATCH,
            "memory_embeddings": _COUNT_VECTORS,
        }
        counted = {}
        for table, sql in statements.items():
            parameters = bound_in(sql, subject, **gone.parameters)
            counted[table] = int((await self._ch.query(sql, parameters, settings=self._reads)).scalar())
        return counted


def identities_of(subject: Subject) -> Sequence[tuple[Scope, Identity]]:
    """Returns the memories of a subject by namespace and name."""
    return [
        (Scope(subject.org, one.namespace), Identity(one.key, one.user_id, one.session_id)) for one in subject.memories
    ]
