"""Drafts of what would make a namespace answer better: rules over its numbers, no model."""

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from loom_insights.domain.namespace import Draft, Finding, Findings, Guide, Inventory, Searches

MOST_DRAFTS: Final = 20

FEWEST_SEARCHES: Final = 20
"""Searches from which the share of empty ones says something. Source: chosen."""

EMPTY_SHARE: Final = 0.2
"""Share of searches without a hit from which it is worth saying. Source: chosen."""

MOST_KINDS: Final = 12
"""Kinds beyond which they no longer tell memories apart. Source: chosen; Loom itself names seven."""

FEWEST_KEYED: Final = 10
"""Memories from which a guide is worth writing. Source: chosen."""

LONGEST_GUIDE: Final = 32_768
"""Longest guide, in bytes, that `namespace.guide_set` takes."""

# What is put into a draft must not read as Markdown or as an instruction; other names are left out.
_PLAIN: Final = re.compile(r"[a-z0-9][a-z0-9_]{0,31}")
_NAMED: Final = 8

# Where a finding is looked into.
_OPS: Final[Mapping[str, str]] = MappingProxyType(
    {"unresolved_conflicts": "memory.conflicts", "missing_vectors": "calibration.get"}
)


def drafts_of(inventory: Inventory, findings: Findings, guide: Guide, searches: Searches) -> tuple[Draft, ...]:
    """Returns drafts, warnings first, else in the order of the rules."""
    found = [
        *(_of_finding(finding) for finding in findings.findings),
        *_guide(inventory, guide),
        *_keys(findings, guide),
        *_kinds(inventory, guide),
        *_searches(searches),
    ]
    found.sort(key=lambda draft: draft.severity != "warning")
    return tuple(found[:MOST_DRAFTS])


def _of_finding(finding: Finding) -> Draft:
    op = _OPS.get(finding.kind, "")
    arguments: dict[str, str | int] = {}
    if not op and finding.subjects:
        first = finding.subjects[0]
        named = {"key": first.key, "user_id": first.user_id, "session_id": first.session_id}
        op, arguments = "memory.inspect", {name: value for name, value in named.items() if value}
    return Draft(finding.kind, finding.severity, finding.message, finding.advice, op, arguments)


def _guide(inventory: Inventory, guide: Guide) -> Iterable[Draft]:
    held = inventory.totals.memories
    if guide.version or held < FEWEST_KEYED:
        return
    lines = ["# How to write here", "", "- One claim per memory, under a key that stays when the claim changes."]
    for by, words in (("key_prefix", "Keys begin with"), ("kind", "Kinds in use")):
        names = _plain(name for name, _ in inventory.group(by).counts)
        if names:
            lines.append(f"- {words}: {', '.join(f'`{name}`' for name in names)}.")
    lines += ["- What is longer than a few sentences is a document: `knowledge.ingest`.", ""]
    yield Draft(
        "guide",
        "hint",
        f"{held} memories and no guide that tells agents how to write here.",
        "Write a guide; each context pack carries it.",
        "namespace.guide_set",
        {"text": "\n".join(lines), "expected_version": guide.current},
    )


def _keys(findings: Findings, guide: Guide) -> Iterable[Draft]:
    unnamed = next((finding for finding in findings.findings if finding.kind == "unnamed_keys"), None)
    line = "- Give each memory a key of its own, such as `deploy_window`: written again, it replaces the old claim."
    if unnamed is None or not guide.version or line in guide.text:
        return
    yield from _added("guide_keys", f"{unnamed.count} memories have no key of their own.", line, guide)


def _kinds(inventory: Inventory, guide: Guide) -> Iterable[Draft]:
    kinds = inventory.group("kind")
    named = _plain(name for name, _ in kinds.counts)
    line = f"- Use these kinds and no others: {', '.join(f'`{name}`' for name in named)}."
    if kinds.names <= MOST_KINDS or not named or not guide.version or line in guide.text:
        return
    yield from _added("guide_kinds", f"Memories are of {kinds.names} kinds, too many to filter by.", line, guide)


def _added(kind: str, reason: str, line: str, guide: Guide) -> Iterable[Draft]:
    text = f"{guide.text.rstrip()}\n{line}\n"
    if len(text.encode()) > LONGEST_GUIDE:
        return
    arguments: dict[str, str | int] = {"text": text, "expected_version": guide.current}
    yield Draft(kind, "hint", reason, "Add a line to the guide.", "namespace.guide_set", arguments)


def _searches(searches: Searches) -> Iterable[Draft]:
    if searches.count < FEWEST_SEARCHES or searches.empty < EMPTY_SHARE * searches.count:
        return
    share = round(100 * searches.empty / searches.count)
    yield Draft(
        "empty_searches",
        "hint",
        f"{searches.empty} of {searches.count} searches of the last seven days ({share} %) found nothing.",
        "Write down what agents ask for and do not find, or ask in the words in which it is stored.",
    )


def _plain(names: Iterable[str]) -> list[str]:
    return [name for name in names if _PLAIN.fullmatch(name)][:_NAMED]
