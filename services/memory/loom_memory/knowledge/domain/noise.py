"""Which sections are noise: they hold the words of many queries and the answer to none.

The rule reads headings and the form of the text, never what the text means, so that the same document always has the
same noise.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

import regex


class Noise(StrEnum):
    """What makes a section noise."""

    NONE = ""
    NAVIGATION = "navigation"
    """Menus, footers, lists of links to other pages."""
    CONTENTS = "contents"
    """A table of contents."""
    LICENCE = "licence"
    """The text of a licence, or a notice of copyright."""
    CHANGELOG = "changelog"
    """What changed from one version to the next."""


_HEADINGS: Final[dict[Noise, frozenset[str]]] = {
    Noise.CONTENTS: frozenset(
        {
            "contents", "table of contents", "toc", "on this page", "in this article", "in this section",
            "page contents", "inhalt", "inhaltsverzeichnis", "table des matières", "sommaire", "índice", "contenido",
            "目次", "目录", "차례",
        }
    ),
    Noise.NAVIGATION: frozenset(
        {
            "navigation", "menu", "main menu", "footer", "header", "sidebar", "breadcrumb", "breadcrumbs", "site map",
            "sitemap", "skip to content", "related articles", "related pages", "share this", "cookie policy", "cookies",
            "quick links",
        }
    ),
    Noise.LICENCE: frozenset(
        {
            "license", "licence", "licenses", "licences", "licensing", "copyright", "copying", "legal notice",
            "legal notices", "copyright notice", "third-party notices", "third party notices", "third-party licenses",
            "lizenz", "licencia", "许可证", "ライセンス",
        }
    ),
    Noise.CHANGELOG: frozenset(
        {
            "changelog", "change log", "changes", "release notes", "release history", "version history",
            "revision history", "unreleased", "更新日志", "変更履歴",
        }
    ),
}  # fmt: skip
_BY_HEADING: Final = {heading: noise for noise, headings in _HEADINGS.items() for heading in headings}

# What only the texts of licences say; two of them in one section are one.
_LEGAL: Final = (
    "permission is hereby granted", "without warranty of any kind", "without warranties or conditions of any kind",
    'provided "as is"', "provided “as is”", "all rights reserved", "redistribution and use in source and binary forms",
    "licensed under the", "in no event shall", "copyright notice and this permission notice",
    "gnu general public license", "merchantability", "unless required by applicable law or agreed to in writing",
    "spdx-license-identifier",
)  # fmt: skip
_LEGAL_COUNT: Final = 2
_LEGAL_CHARS: Final = 20_000

_VERSION: Final = regex.compile(
    r"^[\[(]?(?:version |release )?v?\d+\.\d+(?:\.\d+)*+(?:[-.+]?[a-z0-9]{1,20}+){0,6}+[\])]?(?:\s*[-–—(:].*)?$"
)
_CHANGELOG_NAME: Final = regex.compile(r"(?:^|/)(?:change[-_ ]?log|changes|history|release[-_ ]?notes|news)[^/]*$")
_LICENCE_NAME: Final = regex.compile(r"(?:^|/)(?:licen[cs]e|copying|notice)(?:\.[a-z]+)?$")

# A line that only leads elsewhere: a list item of one link, or an entry with dots and a page behind it.
_LINK_LINE: Final = regex.compile(
    r"^\s*(?:[-*+•]|\d+[.)])?\s*(?:!?\[[^\]\n]{1,200}\]\([^)\s]{1,500}\)[\s|·•,]*)+$|^.{2,200}?[\s.·…]{4,}\d{1,5}\s*$"
)
_LEAST_LINKS: Final = 4
_LINK_SHARE: Final = 0.8
_LOOKED_AT_LINES: Final = 400
# A longer line is text; to look through one of dots takes time by the square of its length.
_LONGEST_LINK_LINE: Final = 4_000


def noise_of(heading_path: Sequence[str], body: str, source_uri: str = "") -> Noise:
    """Returns what makes a section noise.

    Args:
        heading_path: The document's title and the headings down to the section's own.
        body: Its text without its heading.
        source_uri: Where the document comes from.
    """
    headings = [_plain(heading) for heading in heading_path[1:]]
    for heading in headings:
        # What stands under such a heading is such as well.
        if heading in _BY_HEADING:
            return _BY_HEADING[heading]
    name = source_uri.casefold().partition("?")[0].partition("#")[0]
    if headings and _VERSION.match(headings[-1]) and _is_changelog(heading_path, name):
        return Noise.CHANGELOG
    if _LICENCE_NAME.search(name) or _is_legal(body):
        return Noise.LICENCE
    return Noise.CONTENTS if _is_links(body) else Noise.NONE


_ASKED: Final[dict[Noise, frozenset[str]]] = {
    Noise.LICENCE: frozenset({"license", "licence", "licensed", "licensing", "copyright", "spdx", "lizenz"}),
    Noise.CHANGELOG: frozenset({"changelog", "changed", "changes", "release", "released", "releases", "version"}),
    Noise.CONTENTS: frozenset({"contents", "toc", "chapters", "index"}),
    Noise.NAVIGATION: frozenset({"navigation", "menu", "footer", "sitemap"}),
}
_WORDS: Final = regex.compile(r"\p{L}+")


def asked_for(query: str) -> frozenset[Noise]:
    """Returns the kinds of sections that a query names itself: they are no noise to it."""
    words = set(_WORDS.findall(query.casefold()))
    return frozenset(noise for noise, names in _ASKED.items() if words & names)


def _plain(heading: str) -> str:
    return " ".join(heading.casefold().strip(" \t#:*_.").split())


def _is_changelog(heading_path: Sequence[str], name: str) -> bool:
    return _BY_HEADING.get(_plain(heading_path[0])) is Noise.CHANGELOG or bool(_CHANGELOG_NAME.search(name))


def _is_legal(body: str) -> bool:
    folded = " ".join(body[:_LEGAL_CHARS].casefold().split())
    return sum(phrase in folded for phrase in _LEGAL) >= _LEGAL_COUNT


def _is_links(body: str) -> bool:
    lines = [line for line in body.split("\n", _LOOKED_AT_LINES)[:_LOOKED_AT_LINES] if line.strip()]
    links = sum(len(line) <= _LONGEST_LINK_LINE and _LINK_LINE.match(line) is not None for line in lines)
    return links >= _LEAST_LINKS and links >= _LINK_SHARE * len(lines)
