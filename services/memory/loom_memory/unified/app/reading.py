"""Hits of the planes beside memories as texts for a reader: one paragraph for each, fenced as data."""

from collections.abc import Sequence
from datetime import datetime

from loom_common.call import Scope
from loom_common.citations import encode
from loom_memory.domain.reader import block, bracketed, one_line
from loom_memory.unified.app.found import ShownPassage, ShownTurn
from loom_memory.unified.app.ports import SectionMatch, Verdict


def passages_text(hits: Sequence[ShownPassage], home: Scope) -> str:
    """Returns passages as `[date] [uri#anchor] (breadcrumb) text`; one of another namespace names that."""
    return block("documents", [_passage(hit, home) for hit in hits])


def sections_text(hits: Sequence[SectionMatch], home: Scope) -> str:
    """Returns profile sections as `[date] [label] (of whom) value`."""
    return block("profile", [_section(hit, home) for hit in hits])


def turns_text(hits: Sequence[ShownTurn], home: Scope) -> str:
    """Returns turns as `[date] [conversation#turn] (title) author: text`."""
    return block("conversations", [_turn(hit, home) for hit in hits])


def verdict_text(verdict: Verdict) -> str:
    """Returns a verdict as `[reference] (verdict, status) title url`."""
    words = ", ".join(bracketed(word) for word in (verdict.verdict, verdict.status) if word)
    told = one_line(f"{verdict.title} {verdict.url}")
    return block("tracker", [f"[{encode(verdict.reference)}] ({words}) {told}".rstrip()])


def _passage(shown: ShownPassage, home: Scope) -> str:
    document, section = shown.hit.document, shown.hit.section
    words = [bracketed(section.breadcrumb) or "document", *_elsewhere(document.scope, home)]
    if shown.hit.ranked.is_low:
        words.append("low")
    place = f"{document.source_uri}#{section.anchor}" if section.anchor else document.source_uri
    return _line(document.updated_at, place, words, shown.text, is_cut=shown.is_cut)


def _section(match: SectionMatch, home: Scope) -> str:
    of_whom = match.user_id or match.agent or "namespace"
    return _line(match.updated_at, match.label, [bracketed(of_whom), *_elsewhere(match.scope, home)], match.value)


def _turn(shown: ShownTurn, home: Scope) -> str:
    match = shown.match
    words = [bracketed(match.title) or "conversation", *_elsewhere(match.scope, home)]
    author = match.author or match.role
    text = f"{author}: {shown.text}" if author and shown.text else shown.text
    return _line(match.at, f"{match.conversation_id}#{match.turn_index}", words, text, is_cut=shown.is_cut)


def _elsewhere(scope: Scope, home: Scope) -> list[str]:
    return [] if scope == home else [encode(scope.namespace)]


def _line(at: datetime | None, name: str, words: Sequence[str], text: str, *, is_cut: bool = False) -> str:
    date = f"[{at:%Y-%m-%d}] " if at is not None else ""
    more = " ..." if is_cut and text else ""
    return f"{date}[{encode(name)}] ({', '.join(words)}) {one_line(text)}{more}".rstrip()
