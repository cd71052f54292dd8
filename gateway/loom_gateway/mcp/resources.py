"""Resources: what the token may read, as addresses that a client lists, shows and reads."""

from collections.abc import Sequence
from typing import Final

import mcp_types as types
from mcp.shared.exceptions import MCPError
from pydantic import JsonValue

from loom.memory.v1 import memory_pb2
from loom_common.auth.claims import ALL_NAMESPACES
from loom_common.errors import LoomError, Reason
from loom_gateway.calls.caller import NAMESPACE_HEADER
from loom_gateway.mcp import paging
from loom_gateway.mcp.calling import Context, OpCaller, connection_of, not_found
from loom_gateway.mcp.connection import Connection
from loom_gateway.mcp.documents import Documents, Outlines
from loom_gateway.mcp.resource_kinds import ResourceKind, ResourcePage, gist
from loom_gateway.mcp.resource_uris import SCHEME, ResourceUri, parse_uri

# Kinds of which a list holds each; every document has an outline, which need not be listed beside it.
_LISTED: Final = ("memory", "document")
_TEXT: Final = "text/plain"
_MAX_COMPLETIONS: Final = 100
# What is not this caller's is not told apart from what is not there, and no memory has a key that none may have.
_AS_ABSENT: Final = frozenset(
    {Reason.AUTH_INSUFFICIENT, Reason.NOT_FOUND, Reason.INVALID_ARGUMENT, Reason.MALFORMED_REQUEST}
)


class Memories:
    """Memories as resources."""

    template: Final = types.ResourceTemplate(
        uri_template=f"{SCHEME}://memory/{{namespace}}/{{key}}{{?user_id,session_id}}",
        name="memory",
        title="A memory",
        description=(
            "One memory by its key, whole. Name the user and session that it is filed under, if any; a memory filed "
            "under one is not found without it."
        ),
        mime_type=_TEXT,
    )

    async def page(self, caller: OpCaller, context: Context, namespace: str, page_token: str) -> ResourcePage:
        """See `ResourceKind.page`."""
        asked: dict[str, JsonValue] = {"namespace": namespace, "page_size": paging.PAGE_SIZE, "page_token": page_token}
        answer = await caller.read(context, "memory.list", asked)
        assert isinstance(answer, memory_pb2.ListMemoriesResponse), "the answer of memory.list"
        return ResourcePage([_resource(memory) for memory in answer.memories], answer.next_page_token)

    async def read(self, caller: OpCaller, context: Context, uri: ResourceUri) -> types.TextResourceContents | None:
        """See `ResourceKind.read`."""
        asked: dict[str, JsonValue] = {"namespace": uri.namespace, "key": uri.name}
        asked.update({name: uri.facts[name] for name in ("user_id", "session_id") if name in uri.facts})
        answer = await caller.read(context, "memory.get", asked)
        assert isinstance(answer, memory_pb2.GetMemoryResponse), "the answer of memory.get"
        if not answer.found:
            return None
        memory = answer.memory
        facts = {"kind": memory.kind, "version": memory.version, "updated_at": memory.updated_at}
        return types.TextResourceContents(
            uri=str(_uri(memory)),
            mime_type=_TEXT,
            text=memory.value,
            _meta={"loom/memory": {**facts, "tags": list(memory.tags)}},
        )


class Resources:
    """Lists, describes and reads resources of every kind."""

    def __init__(self, caller: OpCaller) -> None:
        self._caller = caller
        self._kinds: dict[str, ResourceKind] = {"memory": Memories(), "document": Documents(), "outline": Outlines()}

    async def list(self, context: Context, params: types.PaginatedRequestParams | None) -> types.ListResourcesResult:
        """Returns one page of all resources, namespace by namespace in the token's order."""
        places = [(kind, name) for name in namespaces_of(connection_of(context)) for kind in _LISTED]
        cursor = params.cursor if params is not None else None
        index, token = 0, ""
        if cursor:
            kind, namespace, held = (str(part) for part in paging.decode(cursor, (str, str, str)))
            if (kind, namespace) not in places:
                raise paging.bad_cursor()
            index, token = places.index((kind, namespace)), held
        while index < len(places):
            kind, namespace = places[index]
            page = await self._kinds[kind].page(self._caller, context, namespace, token)
            following = (index, page.next_page_token) if page.next_page_token else (index + 1, "")
            if page.resources:
                return types.ListResourcesResult(
                    resources=list(page.resources), next_cursor=_cursor(places, *following)
                )
            index, token = following
        return types.ListResourcesResult(resources=[])

    async def templates(
        self, _context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        """Returns what addresses look like."""
        found, cursor = paging.page([kind.template for kind in self._kinds.values()], params)
        return types.ListResourceTemplatesResult(resource_templates=found, next_cursor=cursor)

    async def read(self, context: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        """Returns one resource."""
        uri = parse_uri(params.uri)
        kind = self._kinds.get(uri.kind) if uri is not None else None
        if kind is None or uri is None:
            raise not_found(context, params.uri)
        try:
            contents = await kind.read(self._caller, context, uri)
        except MCPError as error:
            if isinstance(error.__cause__, LoomError) and error.__cause__.reason in _AS_ABSENT:
                raise not_found(context, params.uri) from error
            raise
        if contents is None:
            raise not_found(context, params.uri)
        return types.ReadResourceResult(contents=[contents])

    def complete(self, context: Context, params: types.CompleteRequestParams) -> types.Completion | None:
        """Returns values for a part of an address that begin as the client's does; None for another reference."""
        templates = {kind.template.uri_template for kind in self._kinds.values()}
        if not isinstance(params.ref, types.ResourceTemplateReference) or params.ref.uri not in templates:
            return None
        if params.argument.name != "namespace":
            return types.Completion(values=[], total=0, has_more=False)
        begun = params.argument.value
        found = [name for name in namespaces_of(connection_of(context)) if name.startswith(begun)]
        return types.Completion(values=found[:_MAX_COMPLETIONS], total=len(found), has_more=False)


def namespaces_of(connection: Connection) -> Sequence[str]:
    """Returns the namespaces whose resources are listed: the header's, else those that the token names.

    A token for all of an organisation names none; it reads what it is told the address of.
    """
    named = connection.caller.headers.get(NAMESPACE_HEADER)
    if named:
        return [named]
    return [grant.namespace for grant in connection.claims.namespaces if grant.namespace != ALL_NAMESPACES]


def unknown_reference() -> MCPError:
    """Returns the protocol's error for a completion of what there is not."""
    return MCPError(types.INVALID_PARAMS, "There is no such prompt or resource template.")


def _cursor(places: Sequence[tuple[str, str]], index: int, token: str) -> str | None:
    return paging.encode(*places[index], token) if index < len(places) else None


def _uri(memory: memory_pb2.Memory) -> ResourceUri:
    return ResourceUri(
        "memory", memory.namespace, memory.key, {"user_id": memory.user_id, "session_id": memory.session_id}
    )


def _resource(memory: memory_pb2.Memory) -> types.Resource:
    return types.Resource(
        uri=str(_uri(memory)),
        name=memory.key,
        description=gist(memory.value),
        mime_type=_TEXT,
        annotations=types.Annotations(priority=memory.importance, last_modified=memory.updated_at or None),
    )
