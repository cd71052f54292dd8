"""Recalled memories inside a prompt, and the citations of an answer back out of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import regex

from loom_common.citations import MemoryCitation, memory_citations, replaced_citations
from loom_common.times import format_time
from loom_memory.domain.answers import citation_of, told_at
from loom_memory.domain.fencing import fenced
from loom_memory.domain.memory import Hit

_MARKS: Final = regex.compile(r"\[\s*(m\d{1,3}(?:\s*[,;]\s*m?\d{1,3})*)\s*\]", regex.IGNORECASE)
_NUMBER: Final = regex.compile(r"\d+")
_SPACE_BEFORE: Final = regex.compile(r"[ \t]+(?=[.,;:!?])")
_SPACES: Final = regex.compile(r"[ \t]{2,}")
# Source: chosen; 20 memories of this length are some 10,000 tokens.
_MEMORY_CHARS: Final = 2_000
_ALL_CHARS: Final = 60_000


@dataclass(frozen=True, slots=True)
class Checked:
    """An answer whose citations all name what was recalled.

    Attributes:
        text: The answer with citations in their written form.
        cited: What it cites, in order, each once.
        unverified: Citations that named nothing it was given; they are left out.
    """

    text: str
    cited: tuple[Hit, ...]
    unverified: int


def evidence_prompt(hits: Sequence[Hit]) -> str:
    """Returns recalled memories as data, each behind the mark by which an answer cites it."""
    lines: list[str] = []
    left = _ALL_CHARS
    for number, hit in enumerate(hits, start=1):
        content = hit.memory.content
        text = content.value[: min(_MEMORY_CHARS, max(left, 0))]
        if not text:
            break
        left -= len(text)
        who = f" {content.speaker}:" if content.speaker else ""
        lines.append(f"[m{number}] ({format_time(told_at(hit.memory))}, {content.kind}){who} {text}")
    return fenced("memories", "\n".join(lines))


def checked(answer: str, hits: Sequence[Hit]) -> Checked:
    """Returns an answer with its citations checked against what was recalled, and written out."""
    by_citation = {citation_of(hit.memory): hit for hit in hits}
    unverified = 0

    def written(found: "regex.Match[str]") -> str:
        nonlocal unverified
        places = [int(number) for number in _NUMBER.findall(found[1])]
        known = [hits[place - 1] for place in places if 1 <= place <= len(hits)]
        unverified += len(places) - len(known)
        return "".join(str(citation_of(hit.memory)) for hit in known)

    # What the model wrote out itself counts only where it names what it was given.
    named = memory_citations(answer)
    strangers = [citation for citation in named if citation not in by_citation]
    unverified += len(strangers)
    text = _MARKS.sub(written, replaced_citations(answer, frozenset(by_citation)))
    text = _SPACES.sub(" ", _SPACE_BEFORE.sub("", text))
    cited: dict[MemoryCitation, Hit] = {}
    for citation in memory_citations(text):
        cited.setdefault(citation, by_citation[citation])
    return Checked(text.strip(), tuple(cited.values()), unverified)
