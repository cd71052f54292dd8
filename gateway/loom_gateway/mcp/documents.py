"""Documents as resources: their text, a section of it, and their outlines."""

from typing import Final

import mcp_types as types
from pydantic import JsonValue

from loom.memory.v1 import knowledge_pb2
from loom_gateway.mcp import paging
from loom_gateway.mcp.calling import Context, OpCaller
from loom_gateway.mcp.resource_kinds import ResourcePage, gist
from loom_gateway.mcp.resource_uris import SCHEME, ResourceUri

MAX_CHARS: Final = 64_000
"""Most characters of one read: what `knowledge.get` gives at once."""

_MAX_SECTIONS: Final = 1_000
_TEXT: Final = "text/plain"
_MARKDOWN: Final = "text/markdown"
_MAX_OFFSET_DIGITS: Final = 9


class Documents:
    """Documents as resources."""

    template: Final = types.ResourceTemplate(
        uri_template=f"{SCHEME}://document/{{namespace}}/{{source_uri}}{{?section,offset}}",
        name="document",
        title="A document",
        description=(
            "The text of one document by its name, or of one section of it by its anchor or breadcrumb. A read gives "
            f"{MAX_CHARS:,} characters at most; where more follow, `loom/document` in its `_meta` has the address of "
            "the rest."
        ),
    )

    async def page(self, caller: OpCaller, context: Context, namespace: str, page_token: str) -> ResourcePage:
        """See `ResourceKind.page`."""
        asked: dict[str, JsonValue] = {"namespace": namespace, "page_size": paging.PAGE_SIZE, "page_token": page_token}
        answer = await caller.read(context, "knowledge.list", asked)
        assert isinstance(answer, knowledge_pb2.ListDocumentsResponse), "the answer of knowledge.list"
        return ResourcePage([_resource(document) for document in answer.documents], answer.next_page_token)

    async def read(self, caller: OpCaller, context: Context, uri: ResourceUri) -> types.TextResourceContents | None:
        """See `ResourceKind.read`."""
        asked: dict[str, JsonValue] = {"namespace": uri.namespace, "source_uri": uri.name, "limit": MAX_CHARS}
        if section := uri.facts.get("section"):
            asked["section"] = section
        if offset := uri.facts.get("offset"):
            if not (offset.isascii() and offset.isdecimal() and len(offset) <= _MAX_OFFSET_DIGITS):
                return None
            asked["offset"] = int(offset)
        answer = await caller.read(context, "knowledge.get", asked)
        assert isinstance(answer, knowledge_pb2.GetDocumentResponse), "the answer of knowledge.get"
        if not answer.found:
            return None
        document = answer.document
        told = _facts(document) | {"start_offset": answer.start_offset, "end_offset": answer.end_offset}
        if answer.section.anchor:
            told["section"] = answer.section.breadcrumb
        if answer.HasField("next_offset"):
            facts = {"section": uri.facts.get("section", ""), "offset": str(answer.next_offset)}
            told["next_uri"] = str(_uri("document", document, facts))
        return types.TextResourceContents(
            uri=str(_uri("document", document, uri.facts)),
            mime_type=_media_type(document),
            text=answer.text,
            _meta={"loom/document": told},
        )


class Outlines:
    """Outlines of documents; none is listed, as each document has one."""

    template: Final = types.ResourceTemplate(
        uri_template=f"{SCHEME}://outline/{{namespace}}/{{source_uri}}",
        name="outline",
        title="A document's outline",
        description=(
            "The sections of one document in order, each with the address that it is read at. Of a document with more "
            f"than {_MAX_SECTIONS:,} sections the first ones."
        ),
        mime_type=_MARKDOWN,
    )

    async def page(self, caller: OpCaller, context: Context, namespace: str, page_token: str) -> ResourcePage:
        """See `ResourceKind.page`."""
        return ResourcePage([], "")

    async def read(self, caller: OpCaller, context: Context, uri: ResourceUri) -> types.TextResourceContents | None:
        """See `ResourceKind.read`."""
        asked: dict[str, JsonValue] = {
            "namespace": uri.namespace,
            "source_uri": uri.name,
            "page_size": _MAX_SECTIONS,
        }
        answer = await caller.read(context, "knowledge.outline", asked)
        assert isinstance(answer, knowledge_pb2.ListDocumentSectionsResponse), "the answer of knowledge.outline"
        if not answer.found:
            return None
        document = answer.document
        lines = [_line(document, section) for section in answer.sections]
        if answer.next_page_token:
            lines.append(f"- ... and more: {document.section_count} in all")
        return types.TextResourceContents(
            uri=str(_uri("outline", document, {})),
            mime_type=_MARKDOWN,
            text="\n".join(lines),
            _meta={"loom/document": _facts(document)},
        )


def _line(document: knowledge_pb2.Document, section: knowledge_pb2.DocumentSection) -> str:
    # One line each, whatever a heading holds: brackets would end the link that it is the text of.
    heading = gist(section.heading or document.title or section.anchor).replace("[", "(").replace("]", ")")
    indent = "  " * max(section.level - 1, 0)
    return f"{indent}- [{heading}]({_uri('document', document, {'section': section.anchor})})"


def _uri(kind: str, document: knowledge_pb2.Document, facts: dict[str, str]) -> ResourceUri:
    kept: dict[str, str] = {name: facts[name] for name in ("section", "offset") if name in facts}
    return ResourceUri(kind, document.namespace, document.source_uri, kept)


def _facts(document: knowledge_pb2.Document) -> dict[str, JsonValue]:
    return {
        "title": document.title,
        "kind": document.kind,
        "version": document.version,
        "updated_at": document.updated_at,
        "char_count": document.char_count,
        "section_count": document.section_count,
        "tags": list(document.tags),
    }


def _media_type(document: knowledge_pb2.Document) -> str:
    # What is stored is the text that a converter made, which is Markdown of Markdown alone.
    return _MARKDOWN if document.kind == "markdown" else _TEXT


def _resource(document: knowledge_pb2.Document) -> types.Resource:
    pages = f", {document.page_count} pages" if document.page_count else ""
    described = f"{document.kind}, {document.section_count} sections, {document.char_count} characters{pages}"
    return types.Resource(
        uri=str(_uri("document", document, {})),
        name=document.source_uri,
        title=document.title or None,
        description=described,
        mime_type=_media_type(document),
        annotations=types.Annotations(last_modified=document.updated_at or None),
    )
