"""Citations of documents inside answers: `[doc:<source URI> § <section>]`, or `[doc:<source URI>]` for a whole one.

What would end a citation early, or be taken for the mark between its parts, is percent-encoded by whatever renders one,
and the percent sign with it, so that every URI and every heading comes back as it was.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, unquote

_ENCODED: Final = re.compile(r"[%\]\[§\x00-\x1f\x7f\x85\u2028\u2029]")
_DOCUMENT: Final = re.compile(r"\[doc:([^\]\[\n\r§]{1,6144}?)(?: § ([^\]\[\n\r§]{1,6144}))?\]")


@dataclass(frozen=True, slots=True, order=True)
class DocumentCitation:
    """Names a document, or one section of it by its breadcrumb."""

    source_uri: str
    section: str = ""

    def __str__(self) -> str:
        """Returns it as it stands in an answer."""
        section = f" § {_encode(self.section)}" if self.section else ""
        return f"[doc:{_encode(self.source_uri)}{section}]"


def document_citations(answer: str) -> list[DocumentCitation]:
    """Returns the citations of documents in an answer, in order, each as often as it stands there."""
    return [_citation(found) for found in _DOCUMENT.finditer(answer)]


def kept_citations(answer: str, is_kept: Callable[[DocumentCitation], bool]) -> str:
    """Returns the answer without the citations that are not to be kept, nor the blank before each."""
    parts: list[str] = []
    end = 0
    for found in _DOCUMENT.finditer(answer):
        if is_kept(_citation(found)):
            continue
        parts.append(answer[end : found.start()].removesuffix(" "))
        end = found.end()
    return "".join([*parts, answer[end:]])


def _citation(found: re.Match[str]) -> DocumentCitation:
    return DocumentCitation(unquote(found[1].strip()), unquote((found[2] or "").strip()))


def _encode(text: str) -> str:
    return _ENCODED.sub(lambda found: quote(found[0], safe=""), text)
