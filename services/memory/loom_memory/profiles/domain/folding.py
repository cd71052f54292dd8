"""What of a model's reading of memories becomes part of a profile: rules alone decide."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import regex

from loom_common.json_text import parse_object
from loom_memory.domain.analyzer import analyze_query, analyze_text
from loom_memory.domain.mining import Source
from loom_memory.profiles.domain.schemas import FieldType, ProfileSchema
from loom_memory.profiles.domain.sections import MAX_VALUE_BYTES, ProfileSection, fold_label, fold_value, label_of

MAX_FOLDED: Final = 64
# Source: chosen. A value may be put in order, and not made up: most of its words stand in the memories it cites.
_GROUNDED: Final = 0.6
_MAX_FREE_CHARS: Final = 512
_DIGITS: Final = regex.compile(r"\d+")
# A value of these types is no text of a memory; that a memory is cited is all that can be asked.
_NOT_QUOTED: Final = frozenset({FieldType.BOOLEAN, FieldType.CHOICE, FieldType.DATE})


@dataclass(frozen=True, slots=True)
class Folded:
    """One section that memories say."""

    label: str
    value: str
    sources: tuple[Source, ...]


def read_sections(text: str, sources: Sequence[Source], schema: ProfileSchema | None) -> list[Folded] | None:
    """Returns what of a model's answer the memories bear out, one section to a label; None if it cannot be read."""
    parsed = parse_object(text)
    held = None if parsed.value is None else parsed.value.get("sections")
    if not isinstance(held, list):
        return None
    by_label: dict[str, Folded] = {}
    values: set[str] = set()
    for entry in held[:MAX_FOLDED]:
        if not isinstance(entry, dict):
            continue
        label, value, numbers = entry.get("label"), entry.get("value"), entry.get("sources")
        if not isinstance(label, str) or not isinstance(value, str) or not isinstance(numbers, list):
            continue
        places = [one for one in numbers if isinstance(one, int) and not isinstance(one, bool)]
        named = tuple(sources[place - 1] for place in dict.fromkeys(places) if 1 <= place <= len(sources))
        folded = _borne_out(label, value, named, schema)
        if folded is None or fold_label(folded.label) in by_label or fold_value(folded.value) in values:
            continue
        by_label[fold_label(folded.label)] = folded
        if schema is None:
            values.add(fold_value(folded.value))
    return list(by_label.values())


def profile_text(sections: Sequence[ProfileSection]) -> str:
    """Returns a profile as a prompt lists it."""
    return "\n".join(f"{one.label}: {json.dumps(one.value, ensure_ascii=False)}" for one in sections)


def fields_text(schema: ProfileSchema) -> str:
    """Returns the fields of a schema as a prompt lists them."""
    lines = []
    for one in schema.fields:
        choices = f": {' | '.join(one.choices)}" if one.choices else ""
        lines.append(f"{one.label} ({one.type.value}{choices}) {one.description}".strip())
    return "\n".join(lines)


def _borne_out(label: str, value: str, named: tuple[Source, ...], schema: ProfileSchema | None) -> Folded | None:
    try:
        label = label_of(label)
    except ValueError:
        return None
    value = value.strip()
    if not value or not named or "\x00" in value or len(value.encode("utf-8", "replace")) > MAX_VALUE_BYTES:
        return None
    kind = FieldType.TEXT
    if schema is None:
        value = " ".join(value.split())
        if len(value) > _MAX_FREE_CHARS:
            return None
    else:
        field = schema.field_of(label)
        if field is None:
            return None
        try:
            label, value, kind = field.label, field.value_of(value), field.type
        except ValueError:
            return None
    if kind not in _NOT_QUOTED and not _is_grounded(value, named):
        return None
    return Folded(label, value, named)


def _is_grounded(value: str, named: Sequence[Source]) -> bool:
    """Says whether memories hold a value's numbers, and most of its words."""
    said = "\n".join(f"{source.speaker} {source.value}" for source in named)
    numbers = set(_DIGITS.findall(said))
    if any(number not in numbers for number in _DIGITS.findall(value)):
        return False
    terms = analyze_query(value).terms
    held = set(analyze_text(said).term_ids)
    total = sum(term.weight for term in terms)
    return bool(total) and sum(term.weight for term in terms if term.term_id in held) / total >= _GROUNDED
