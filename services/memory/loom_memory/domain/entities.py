"""People, places and things that texts name: found by their form, and put together by their names."""

import hashlib
import json
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

import regex

from loom_common.lenient_json import JsonValue

KINDS: Final = ("person", "organisation", "place", "product", "event", "thing")
MAX_MENTIONS: Final = 32
"""Most entities of one memory. Source: chosen; a memory is one fact."""

_MAX_NAME_CHARS: Final = 128
_MAX_ALIASES: Final = 16
_ID_BYTES: Final = 12
_MAX_TEXT_CHARS: Final = 8_000
_CONNECTORS: Final = r"(?:of|de|da|di|van|von|der|den|la|le|del|&)"
# Possessive, and only from the beginning of a word: nothing is tried again shorter, so that time is linear.
_WORD: Final = r"(?<![\p{L}\p{N}_])\p{Lu}(?:['’.-]?+[\p{L}\p{N}]){0,63}+(?![\p{L}\p{N}_])"
_CAPITALS: Final = rf"{_WORD}(?:\s{{1,4}}+(?:{_CONNECTORS}\s{{1,4}}+)?{_WORD}){{0,4}}+"
_NAME: Final = regex.compile(_CAPITALS)
_SENTENCE_START: Final = regex.compile(r"(?:^|[.!?:;]\s+|\n\s*|[\"“(\[-]\s*)$")
_HANDLE: Final = regex.compile(r"(?<![\w@])@[\p{L}\p{N}_]{2,64}")
_CODE: Final = regex.compile(
    r"(?<![\w/])(?:[\w.-]{1,64}/){0,10}[\w-]{1,64}\.(?:py|ts|js|tsx|go|rs|java|md|toml|ya?ml|json|sql|sh)\b"
)
_CAMEL: Final = regex.compile(r"\b(?:\p{Lu}\p{Ll}++){2,16}+\b|\b[a-z]++(?:_++[a-z]++){1,16}+\b")
_KNOWN_AS: Final = regex.compile(
    rf"({_CAPITALS})\s{{0,4}}+[,(]?\s{{0,4}}+"
    rf"(?:also known as|aka|a\.k\.a\.|known as|called|or)\s{{1,4}}+\"?({_CAPITALS})"
)
_ACRONYM: Final = regex.compile(rf"({_CAPITALS})\s{{1,4}}+\((\p{{Lu}}{{2,8}})\)")
# Words that are large for their place or their language, and are nobody's name.
_NO_NAMES: Final = frozenset(
    """
    i i'm i've i'd i'll the a an this that these those it he she we they you my your his her its our their and but or so
    if when where what who why how yes no not is are was were do does did has have had can could will would should may
    there here today yesterday tomorrow monday tuesday wednesday thursday friday saturday sunday january february march
    april june july august september october november december on in at by for from to with as after before since until
    also then now just let please thanks thank hello hi dear ok okay note user assistant system tool
    """.split()  # noqa: SIM905  (read as text)
)


@dataclass(frozen=True, slots=True)
class Mention:
    """One name in one text, and other names of the same that the text gives."""

    name: str
    kind: str = "thing"
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Entity:
    """One person, place or thing of a user's memories, or of those that all share."""

    id: str
    name: str
    kind: str
    aliases: tuple[str, ...]
    first_seen_at: datetime
    last_seen_at: datetime
    mention_count: int = 0
    tombstoned_at: datetime | None = None
    version: int = 0

    @property
    def folded(self) -> tuple[str, ...]:
        """Its names as they are looked up."""
        return tuple(dict.fromkeys(fold(name) for name in (self.name, *self.aliases)))

    @property
    def text(self) -> str:
        """What is embedded of it."""
        return ", ".join((self.name, *self.aliases))


def fold(name: str) -> str:
    """Returns a name as it is compared: by its letters alone."""
    folded = unicodedata.normalize("NFKC", name).casefold()
    return " ".join(folded.removesuffix("'s").removesuffix("’s").split())


def named_in(text: str) -> list[Mention]:
    """Returns what a text names, found by form: names written large, handles, files and identifiers of code."""
    text = text[:_MAX_TEXT_CHARS]
    aliases: dict[str, list[str]] = {}
    for pattern in (_KNOWN_AS, _ACRONYM):
        for found in pattern.finditer(text):
            first, second = _trimmed(found[1]), _trimmed(found[2])
            if first and second and fold(first) != fold(second):
                aliases.setdefault(fold(first), []).append(second)
    taken = {fold(alias) for names in aliases.values() for alias in names}
    mentions: dict[str, Mention] = {}
    for pattern, kind in ((_HANDLE, "person"), (_CODE, "thing"), (_CAMEL, "thing")):
        for found in pattern.finditer(text):
            mentions.setdefault(fold(found[0]), Mention(found[0], kind))
    for found in _NAME.finditer(text):
        name = _trimmed(found[0])
        # A single large word that begins a sentence is mostly no name.
        starts = _SENTENCE_START.search(text[max(0, found.start() - 8) : found.start()]) is not None
        is_owner = found[0].endswith(("'s", "’s"))
        if not name or (starts and " " not in name and not is_owner and not _recurs(name, text, found.end())):
            continue
        mentions.setdefault(fold(name), Mention(name))
    return [
        replace(mention, aliases=tuple(dict.fromkeys(aliases.get(folded, ()))))
        for folded, mention in mentions.items()
        if folded not in taken
    ][:MAX_MENTIONS]


def mentions_from_json(held: JsonValue, count: int) -> dict[int, list[Mention]]:
    """Returns the mentions that a model's answer lists, by the number of the text, from 0."""
    found: dict[int, list[Mention]] = {}
    for entry in held if isinstance(held, list) else []:
        if not isinstance(entry, dict):
            continue
        number, name = entry.get("memory"), entry.get("name")
        if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= count:
            continue
        if not isinstance(name, str) or not _is_name(name):
            continue
        kind = entry.get("kind")
        given = entry.get("aliases")
        aliases = [one for one in given if isinstance(one, str) and _is_name(one)] if isinstance(given, list) else []
        mention = Mention(
            " ".join(name.split()),
            kind if isinstance(kind, str) and kind in KINDS else "thing",
            tuple(" ".join(one.split()) for one in aliases)[:_MAX_ALIASES],
        )
        if len(found.setdefault(number - 1, [])) < MAX_MENTIONS:
            found[number - 1].append(mention)
    return found


class Merging:
    """Puts mentions together with what is known: entities that share a name or an alias are one."""

    def __init__(self, known: Sequence[Entity], now: datetime) -> None:
        self._now = now
        self._entities = {entity.id: entity for entity in known}
        self._by_name: dict[str, str] = {}
        for entity in sorted(known, key=lambda one: (one.first_seen_at, one.id), reverse=True):
            self._by_name.update(dict.fromkeys(entity.folded, entity.id))
        self.merged: dict[str, str] = {}
        """Entities that turned out to be another, by their identifiers."""
        self.changed: set[str] = set()

    def entity_of(self, mention: Mention, seen_at: datetime) -> str:
        """Returns the identifier of the entity that a mention names, new where none is known."""
        names = [mention.name, *mention.aliases]
        found = sorted(
            {self._by_name[fold(name)] for name in names if fold(name) in self._by_name},
            key=lambda one: (self._entities[one].first_seen_at, one),
        )
        if not found:
            return self._new(mention, seen_at)
        kept = self._entities[found[0]]
        for other in found[1:]:
            kept = self._join(kept, self._entities[other])
        self._put(_with_names(kept, names, mention.kind, seen_at))
        return kept.id

    def entities(self) -> Mapping[str, Entity]:
        """Returns all entities by their identifiers, those that were merged into others with a tombstone."""
        return self._entities

    def _new(self, mention: Mention, seen_at: datetime) -> str:
        made = Entity(
            entity_id(mention.name), mention.name, mention.kind, mention.aliases[:_MAX_ALIASES], seen_at, seen_at
        )
        self._put(made)
        return made.id

    def _join(self, kept: Entity, other: Entity) -> Entity:
        self.merged[other.id] = kept.id
        self.merged = {old: kept.id if new == other.id else new for old, new in self.merged.items()}
        self._entities[other.id] = replace(other, tombstoned_at=self._now)
        self.changed.add(other.id)
        joined = _with_names(kept, [other.name, *other.aliases], other.kind, other.last_seen_at)
        return replace(joined, first_seen_at=min(kept.first_seen_at, other.first_seen_at))

    def _put(self, entity: Entity) -> None:
        if self._entities.get(entity.id) != entity:
            self.changed.add(entity.id)
        self._entities[entity.id] = entity
        self._by_name.update(dict.fromkeys(entity.folded, entity.id))


def entity_id(name: str) -> str:
    """Returns the identifier of an entity that is first met under a name."""
    return f"e-{hashlib.blake2b(json.dumps(fold(name)).encode(), digest_size=_ID_BYTES).hexdigest()}"


def _with_names(entity: Entity, names: Sequence[str], kind: str, seen_at: datetime) -> Entity:
    held = {fold(name) for name in (entity.name, *entity.aliases)}
    more = [name for name in dict.fromkeys(names) if fold(name) not in held]
    return replace(
        entity,
        kind=kind if entity.kind == "thing" else entity.kind,
        aliases=(*entity.aliases, *more)[:_MAX_ALIASES],
        first_seen_at=min(entity.first_seen_at, seen_at),
        last_seen_at=max(entity.last_seen_at, seen_at),
        tombstoned_at=None,
    )


def _trimmed(name: str) -> str:
    """Returns a name without words at its beginning that are none; empty where nothing is left."""
    words = name.strip(" .'’-").split()
    while words and fold(words[0].strip(".'’")) in _NO_NAMES:
        words = words[1:]
    while words and fold(words[-1].strip(".'’")) in _NO_NAMES:
        words = words[:-1]
    trimmed = " ".join(words).removesuffix("'s").removesuffix("’s").strip(" .'’-")
    return trimmed if _is_name(trimmed) else ""


def _is_name(name: str) -> bool:
    return 1 < len(name.strip()) <= _MAX_NAME_CHARS and any(letter.isalpha() for letter in name)


def _recurs(name: str, text: str, behind: int) -> bool:
    """Says whether a word that begins a sentence stands large elsewhere too, or is followed by what only names are."""
    following = text[behind : behind + 12]
    if regex.match(r"(?:'s|’s)?\s+(?:is|was|has|had|likes|loves|lives|works|said|and \p{Lu})\b", following):
        return True
    return regex.search(rf"(?<=\w\s){regex.escape(name)}\b", text) is not None
