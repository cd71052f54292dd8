"""Texts that a language model writes from documents, with citations that hold."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from loom_common.call import Scope
from loom_common.document_citations import DocumentCitation, document_citations, kept_citations
from loom_common.errors import InvalidArgument, NotFound
from loom_memory.app.llm import LlmPort
from loom_memory.domain.fencing import fenced
from loom_memory.domain.prompts.synthesis import WRITE
from loom_memory.knowledge.app.ingest import Ingestion, Status
from loom_memory.knowledge.app.read import DocumentReader, find_section
from loom_memory.knowledge.domain.documents import Document
from loom_memory.knowledge.domain.noise import Noise
from loom_memory.knowledge.domain.preparation import Source
from loom_memory.knowledge.domain.sections import Section

MAX_CHARS: Final = 120_000
"""Characters of sections that a model is given. Source: chosen; some 30,000 tokens, which every served model takes."""

# A part of a section that is shorter than this says too little.
_LEAST_PART: Final = 1_000
_NO_MODEL: Final = "This deployment has no language model, so that nothing was written. Set a provider's key."
_MAX_TOKENS: Final = 4_096
_FEATURE: Final = "knowledge.synthesize"
_SUMMARY: Final = "Write a summary of what these documents say."
_SCHEME: Final = "loom:synthesis/"


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be written."""

    source_uris: tuple[str, ...]
    instruction: str = ""
    target_uri: str = ""
    title: str = ""
    tags: tuple[str, ...] = ()
    dry_run: bool = False

    @property
    def target(self) -> str:
        """Name that it is stored under; the same for the same documents and instruction."""
        if self.target_uri:
            return self.target_uri
        told = json.dumps([sorted(self.source_uris), self.instruction])
        return f"{_SCHEME}{hashlib.sha256(told.encode()).hexdigest()[:24]}.md"


@dataclass(frozen=True, slots=True)
class CheckedCitation:
    """A citation that a model wrote, and whether it holds."""

    citation: DocumentCitation
    reason: str = ""
    anchor: str = ""

    @property
    def is_verified(self) -> bool:
        """Whether the document has what it names."""
        return not self.reason


@dataclass(frozen=True, slots=True)
class Synthesis:
    """What was written, and what became of it; `reason` says why it is not stored."""

    source_uri: str
    reason: str = ""
    message: str = ""
    revision: int = 0
    text: str = ""
    citations: Sequence[CheckedCitation] = ()
    model: str = ""
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class _Read:
    """One document as it was read."""

    document: Document
    sections: Sequence[Section]
    text: str


class Synthesizer:
    """Writes from named documents and stores what holds."""

    def __init__(self, reader: DocumentReader, ingestion: Ingestion, llm: LlmPort) -> None:
        self._reader = reader
        self._ingestion = ingestion
        self._llm = llm

    async def write(self, scope: Scope, order: Order, actor: str) -> Synthesis:
        """Writes a text and stores it.

        Raises:
            NotFound: A named document is not there.
            InvalidArgument: The text would take the place of one that it is written from.
            LoomError: The model did not answer.
        """
        if order.target in order.source_uris:
            raise InvalidArgument.of("target_uri", "must not be one of the documents that it is written from")
        read = [await self._read(scope, source_uri) for source_uri in dict.fromkeys(order.source_uris)]
        if (await self._llm.served()).fake:
            return Synthesis(
                order.target,
                "no_model",
                _NO_MODEL,
            )
        prompt, left_out = _told(read, order.instruction or _SUMMARY)
        answer = await self._llm.complete(WRITE.text, prompt, max_tokens=_MAX_TOKENS, feature=_FEATURE, prompt=WRITE)
        if answer.fake:
            return Synthesis(order.target, "no_model", _NO_MODEL)
        checked = [_checked(citation, read) for citation in document_citations(answer.text)]
        held = {each.citation for each in checked if each.is_verified}
        text = kept_citations(answer.text, lambda citation: citation in held).strip()
        written = Synthesis(order.target, "", "", 0, text, checked, answer.model, left_out)
        return await self._stored(scope, order, written, bool(held), actor)

    async def _stored(self, scope: Scope, order: Order, written: Synthesis, is_cited: bool, actor: str) -> Synthesis:
        if not is_cited:
            message = "None of what the model wrote cites a section of the documents, so that nothing was stored."
            return _ended(written, "no_citations", message)
        if order.dry_run:
            return _ended(written, "dry_run", "Nothing was stored, as asked.")
        source = Source(
            order.target,
            written.text.encode(),
            media_type="text/markdown",
            title=order.title,
            tags=order.tags,
            derived_from=tuple(dict.fromkeys(order.source_uris)),
        )
        ingested = await self._ingestion.ingest(scope, source, actor)
        revision = ingested.document.revision
        if ingested.status is Status.UNCHANGED:
            return _ended(written, "unchanged", "The same text is stored already.", revision)
        return _ended(written, "", "", revision)

    async def _read(self, scope: Scope, source_uri: str) -> _Read:
        document = await self._reader.document(scope, source_uri)
        if document is None:
            raise NotFound(f"There is no document {source_uri!r} here.", detail={"source_uri": source_uri})
        sections = await self._reader.sections(document)
        return _Read(document, sections, await self._reader.text(document, 0, document.facts.chars))


def _told(read: Sequence[_Read], instruction: str) -> tuple[str, int]:
    """Returns what a model is told, and how many sections did not fit.

    Every document has the same share, and what one leaves of it is the others'; noise is left out where something has
    to be.
    """
    left = MAX_CHARS
    shares: dict[int, int] = {}
    # The shortest first, so that what they leave is known to the longer ones.
    for done, place in enumerate(sorted(range(len(read)), key=lambda place: len(read[place].text))):
        shares[place] = min(len(read[place].text), left // (len(read) - done))
        left -= shares[place]
    parts: list[str] = []
    left_out = 0
    for place, each in enumerate(read):
        is_cut = shares[place] < len(each.text)
        budget = shares[place]
        for section in each.sections:
            body = each.text[section.start : section.end]
            if not body.strip():
                continue
            fits = len(body) <= budget
            if not fits:
                left_out += 1
            if (is_cut and section.noise is not Noise.NONE) or (not fits and budget < _LEAST_PART):
                left_out += fits
                continue
            body = body[:budget]
            budget -= len(body)
            citation = DocumentCitation(each.document.source_uri, section.breadcrumb)
            parts.append(fenced("section", f"{citation}\n{body}"))
    return "\n\n".join([*parts, f"What to write: {instruction}"]), left_out


def _checked(citation: DocumentCitation, read: Sequence[_Read]) -> CheckedCitation:
    known: Mapping[str, _Read] = {each.document.source_uri: each for each in read}
    document = known.get(citation.source_uri)
    if document is None:
        return CheckedCitation(citation, "no_such_document")
    if not citation.section:
        return CheckedCitation(citation)
    section = find_section(document.sections, citation.section)
    return (
        CheckedCitation(citation, "no_such_section")
        if section is None
        else CheckedCitation(citation, "", section.anchor)
    )


def _ended(written: Synthesis, reason: str, message: str, revision: int = 0) -> Synthesis:
    return Synthesis(
        written.source_uri, reason, message, revision, written.text, written.citations, written.model, written.left_out
    )
