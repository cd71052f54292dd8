"""Documents as they come: whole in a request, or in pieces over a stream."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Final

from loom.memory.v1 import knowledge_pb2 as pb
from loom_common.call import Scope, current, scope
from loom_common.errors import InvalidArgument, LoomError
from loom_common.interceptors.validation import check_message
from loom_memory.app.access import actor
from loom_memory.knowledge.api.messages import ingested_to_proto
from loom_memory.knowledge.app.fetching import Fetch
from loom_memory.knowledge.app.ingest import Ingestion, Notice, Stage, Status, too_large
from loom_memory.knowledge.domain.preparation import Source

# A call that waits for its answer has a deadline, and a long document's vectors may take minutes: those that are not
# made by then are a worker's. Source: chosen, under the shortest usual deadline.
_EMBED_S: Final = 8.0


class Intake:
    """Gives documents to the ingestion, each by itself: one that is refused does not lose the others."""

    def __init__(self, ingestion: Ingestion, fetch: Fetch, *, max_bytes: int) -> None:
        self._ingestion = ingestion
        self._fetch = fetch
        self._max_bytes = max_bytes

    async def one(self, given: pb.DocumentInput) -> pb.IngestResult:
        """Stores a document that came whole."""
        try:
            source = await self._source(given)
            return ingested_to_proto(await self._ingestion.ingest(scope(), source, actor(), embed_s=_EMBED_S))
        except LoomError as error:
            return _refused(given.source_uri or given.url, error)

    async def upload(
        self, requests: AsyncIterator[pb.UploadDocumentsRequest]
    ) -> AsyncGenerator[pb.UploadDocumentsResponse, None]:
        """Stores documents that come in pieces, and yields how far each is."""
        number = 0
        held: _Incoming | None = None
        async for request in requests:
            _require_addressed(request)
            if request.HasField("document"):
                if held is not None:
                    yield held.ended(_cut())
                number += 1
                held = _Incoming(number, request.document, self._max_bytes)
            if held is None:
                raise InvalidArgument.of("document", "must begin each document, before its first piece")
            held.add(request.piece)
            if request.last:
                async for progress in self._finish(held):
                    yield progress
                held = None
        if held is not None:
            yield held.ended(_cut())

    async def _finish(self, held: "_Incoming") -> AsyncIterator[pb.UploadDocumentsResponse]:
        try:
            source = held.source()
        except LoomError as error:
            yield held.ended(error)
            return
        yield held.progress(Stage.RECEIVED)
        told: asyncio.Queue[pb.UploadDocumentsResponse | None] = asyncio.Queue()

        def notice(stage: Stage, done: int, total: int) -> None:
            told.put_nowait(held.progress(stage, done, total))

        work = asyncio.create_task(self._ingested(scope(), source, notice, held))
        work.add_done_callback(lambda _: told.put_nowait(None))
        try:
            while (progress := await told.get()) is not None:
                yield progress
            yield await work
        finally:
            if not work.done():
                work.cancel()
                await asyncio.wait({work})

    async def _ingested(
        self, namespace: Scope, source: Source, notice: Notice, held: "_Incoming"
    ) -> pb.UploadDocumentsResponse:
        try:
            ingested = await self._ingestion.ingest(namespace, source, actor(), notice)
        except LoomError as error:
            return held.ended(error)
        return held.done(ingested_to_proto(ingested))

    async def _source(self, given: pb.DocumentInput) -> Source:
        """Returns a document as it was given.

        Raises:
            LoomError: It was given in no way or in several, or its URL cannot be read.
        """
        check_message(given)
        ways = [name for name in ("text", "content", "url") if getattr(given, name)]
        if len(ways) != 1:
            raise InvalidArgument.of("documents", "must each hold exactly one of text, content and url")
        if given.url:
            if current().claims is None:
                raise InvalidArgument.of("url", "is read for callers with a token alone")
            fetched = await self._fetch(given.url)
            return _source(given, fetched.content, given.media_type or fetched.media_type)
        return _source(given, given.content or given.text.encode(), given.media_type)


class _Incoming:
    """One document while its pieces come."""

    def __init__(self, number: int, given: pb.DocumentInput, max_bytes: int) -> None:
        self._number = number
        self._given = given
        self._max_bytes = max_bytes
        self._content = bytearray()
        self._size = 0

    def add(self, piece: bytes) -> None:
        """Takes a piece; what is beyond the bound is counted and not kept."""
        self._size += len(piece)
        if self._size <= self._max_bytes:
            self._content += piece
        else:
            self._content.clear()

    def source(self) -> Source:
        """Returns the whole document.

        Raises:
            LoomError: It is too long, or was begun in another way.
        """
        check_message(self._given)
        if self._given.text or self._given.content or self._given.url:
            raise InvalidArgument.of("document", "must hold no text, content or url where its bytes follow in pieces")
        if self._size > self._max_bytes:
            raise too_large(self._size, self._max_bytes)
        return _source(self._given, bytes(self._content), self._given.media_type)

    def progress(self, stage: Stage, done: int = 0, total: int = 0) -> pb.UploadDocumentsResponse:
        """Returns how far it is."""
        return pb.UploadDocumentsResponse(
            document=self._number,
            source_uri=self._given.source_uri,
            stage=stage.value,
            done_count=done,
            total_count=total,
        )

    def done(self, result: pb.IngestResult) -> pb.UploadDocumentsResponse:
        """Returns what became of it."""
        return pb.UploadDocumentsResponse(
            document=self._number, source_uri=self._given.source_uri, stage=Stage.DONE.value, result=result
        )

    def ended(self, error: LoomError) -> pb.UploadDocumentsResponse:
        """Returns why it was refused."""
        return self.done(_refused(self._given.source_uri, error))


def _source(given: pb.DocumentInput, content: bytes, media_type: str) -> Source:
    return Source(
        source_uri=given.source_uri or given.url,
        content=content,
        media_type=media_type,
        title=given.title,
        language=given.language,
        tags=tuple(dict.fromkeys(given.tags)),
    )


def _require_addressed(request: pb.UploadDocumentsRequest) -> None:
    """Refuses a message that names another place than the call was authorized for, by its first message."""
    addressed = scope()
    for field in ("org", "namespace"):
        if request.HasField(field) and getattr(request, field) != getattr(addressed, field):
            raise InvalidArgument.of(field, "differs from that of the first message; leave it out")


def _refused(source_uri: str, error: LoomError) -> pb.IngestResult:
    return pb.IngestResult(
        source_uri=source_uri,
        status=Status.REFUSED.value,
        reason=error.reason.value,
        message=error.message or error.reason.value,
    )


def _cut() -> LoomError:
    return InvalidArgument.of("last", "must end each document; this one was cut before it")
