"""What a document is: its name, its kinds, and what is known of a version of it."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from loom_common.call import Scope


class Kind(StrEnum):
    """What a document is written in."""

    MARKDOWN = "markdown"
    HTML = "html"
    TEXT = "text"
    PDF = "pdf"
    DOCX = "docx"
    CODE = "code"


AGENT_TAG = "agent:"
"""A document with a tag of this beginning is a rule promoted for the agent that the tag names."""


@dataclass(frozen=True, slots=True)
class DocumentFacts:
    """What a version of a document says of itself.

    Attributes:
        title: As its writer, else its own first heading or its file's name says.
        kind: What it is written in.
        language: Programming language, for code; empty otherwise.
        tags: Labels, in the order given.
        digest: SHA-256 of the bytes that were given, in hex, and of what else decides about the stored text.
        size_bytes: Length of what was given.
        chars: Code points of the stored text.
        pages: Pages, for PDF; 0 otherwise.
        sections: Number of sections.
        chunks: Number of chunks.
        derived_from: URIs of the documents that it was written from; empty for one that was given.
    """

    title: str
    kind: Kind
    language: str = ""
    tags: tuple[str, ...] = ()
    digest: str = ""
    size_bytes: int = 0
    chars: int = 0
    pages: int = 0
    sections: int = 0
    chunks: int = 0
    derived_from: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Document:
    """The current version of a document.

    Attributes:
        scope: Namespace that holds it.
        source_uri: Its name there.
        facts: What it says of itself.
        actor: Who wrote this version: `human:` or `process:` and the token's subject.
        revision: 1, 2, 3 and so on; what callers see as the version.
        version: Unique number of the write, which its sections, chunks and vectors carry too.
        created_at: When the document was first stored, since it was last deleted.
        updated_at: When this version was stored.
        tombstoned_at: When it was deleted; None while it is not.
    """

    scope: Scope
    source_uri: str
    facts: DocumentFacts
    actor: str
    revision: int
    version: int
    created_at: datetime
    updated_at: datetime
    tombstoned_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class DocumentFilter:
    """Which documents a read keeps; an empty part keeps everything.

    Attributes:
        tags: Keeps documents that carry any of these.
        source_prefix: Keeps documents whose URI begins with it.
        kinds: Keeps these kinds.
        source_uris: Keeps these documents.
        agent: Who searches: rules promoted for others are left out, unless `tags` names them. None keeps every rule.
    """

    tags: tuple[str, ...] = ()
    source_prefix: str = ""
    kinds: tuple[str, ...] = ()
    source_uris: tuple[str, ...] = ()
    agent: str | None = None

    @property
    def agent_tags(self) -> tuple[str, ...]:
        """Tags of rules that are kept where rules of other agents are left out."""
        named = tuple(tag for tag in self.tags if tag.startswith(AGENT_TAG))
        return (*named, f"{AGENT_TAG}{self.agent}") if self.agent else named
