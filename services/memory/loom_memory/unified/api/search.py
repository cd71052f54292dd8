"""`loom.memory.v1.SearchService`."""

from typing import Final

import grpc.aio

from loom.memory.v1 import search_pb2 as pb
from loom.memory.v1 import search_pb2_grpc as pb_grpc
from loom_common.call import current, scope
from loom_memory.unified.api.messages import asked_from_proto, response_from_found
from loom_memory.unified.app.search import UnifiedSearch

_NAMESPACE: Final = "x-loom-namespace"
_CODE_SCOPE: Final = "x-loom-code-scope"


class SearchServicer(pb_grpc.SearchServiceServicer):
    """Translates, delegates, translates back; the interceptors answer a LoomError."""

    def __init__(self, search: UnifiedSearch) -> None:
        self._search = search

    async def Search(
        self, request: pb.SearchRequest, context: grpc.aio.ServicerContext[pb.SearchRequest, pb.SearchResponse]
    ) -> pb.SearchResponse:
        """See the contract."""
        sent = {str(name): value for name, value in context.invocation_metadata() or ()}
        # Only the gateway says in which checkout a caller works, and it says so of MCP connections alone.
        code_scope = str(sent.get(_CODE_SCOPE, "")) if current().peer_service is not None else ""
        asked = asked_from_proto(
            request,
            scope(),
            is_named=request.HasField("namespace") or bool(sent.get(_NAMESPACE)),
            code_scope=code_scope,
        )
        return response_from_found(await self._search.search(asked), explain=request.explain)
