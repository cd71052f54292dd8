"""Sending every memory of a namespace, as it was when the call began."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Final, cast

from pydantic import JsonValue

from loom_common.call import Scope
from loom_common.clock import Clock
from loom_common.page_tokens import decode_page_token, encode_page_token
from loom_memory.app.embedding import EmbeddingPort
from loom_memory.app.write_versions import WriteVersions
from loom_memory.domain.memory import Filter, Identity, Memory
from loom_memory.domain.records import MAX_VERSIONS_BYTES, RecordVectors, line_from_memory
from loom_memory.domain.vectors import VectorSpace
from loom_memory.store.memories import LAST_VERSION
from loom_memory.store.transfer import TransferRepository

_FIRST: Final = Identity("")
# Source: chosen. A page costs a few statements, whatever it holds, and its texts are in memory together.
_PAGE: Final = 500
# Most bytes of lines in one message, but for a single longer line.
_BATCH_BYTES: Final = 1_000_000
_CURSOR_KINDS: Final = (int, str, str, str)


@dataclass(frozen=True, slots=True)
class ExportQuery:
    """What is exported.

    Attributes:
        wanted: Which memories.
        with_vectors: Whether their vectors of the served model come along.
        with_versions: Whether their earlier versions do.
        cursor: Where an earlier call was cut; empty for the beginning.
    """

    wanted: Filter
    with_vectors: bool = False
    with_versions: bool = False
    cursor: str = ""


@dataclass(frozen=True, slots=True)
class ExportedLines:
    """Some lines, where the export goes on behind them, and how many lines were sent so far with them."""

    lines: tuple[bytes, ...]
    cursor: str
    count: int


class MemoryExport:
    """Exports memories, a page at a time.

    The moment of an export is a number of the store: a memory that was written again since is shown by its version of
    then. Another replica's write that was under way at that moment may or may not be in it.
    """

    def __init__(
        self,
        transfer: TransferRepository,
        embedding: EmbeddingPort,
        *,
        clock: Clock,
        numbers: WriteVersions,
        page_size: int = _PAGE,
    ) -> None:
        self._transfer = transfer
        self._embedding = embedding
        self._clock = clock
        self._numbers = numbers
        self._page_size = page_size

    async def run(self, scope: Scope, query: ExportQuery) -> AsyncGenerator[ExportedLines, None]:
        """Yields the lines, in order of key, user and session.

        Raises:
            InvalidArgument: The cursor is none of this export.
        """
        described = _described(scope, query)
        place = decode_page_token(query.cursor, described, _CURSOR_KINDS)
        if place is None:
            moment, after = self._numbers.settled, _FIRST
        else:
            moment = min(max(cast(int, place[0]), 0), LAST_VERSION)
            after = Identity(cast(str, place[1]), cast(str, place[2]), cast(str, place[3]))
        space = await self._space() if query.with_vectors else None
        count = 0
        while page := await self._transfer.page(scope, query.wanted, self._clock.now(), after, self._page_size):
            lines: list[bytes] = []
            size = 0
            for memory, line in await self._lines(scope, query, page, moment, space):
                if lines and size + len(line) > _BATCH_BYTES:
                    yield ExportedLines(tuple(lines), _cursor(moment, after, described), count)
                    lines, size = [], 0
                lines.append(line)
                size, count, after = size + len(line), count + 1, memory.identity
            after = page[-1].identity
            if lines:
                yield ExportedLines(tuple(lines), _cursor(moment, after, described), count)
            if len(page) < self._page_size:
                return

    async def _space(self) -> VectorSpace:
        served = await self._embedding.served_model()
        return VectorSpace(served.name, served.dim)

    async def _lines(
        self, scope: Scope, query: ExportQuery, page: Sequence[Memory], moment: int, space: VectorSpace | None
    ) -> list[tuple[Memory, bytes]]:
        newer = [memory.identity for memory in page if memory.version > moment]
        wanted = [memory.identity for memory in page] if query.with_versions else newer
        versions = await self._transfer.versions(scope, wanted, moment)
        then = {identity: found[-1] for identity, found in versions.items()}
        memories = [then.get(memory.identity) if memory.version > moment else memory for memory in page]
        shown = [memory for memory in memories if memory is not None]
        vectors: Mapping[tuple[Identity, int], RecordVectors] = {}
        if space is not None:
            vectors = await self._transfer.vectors(scope, [memory.identity for memory in shown], space)
        lines = []
        for memory in shown:
            earlier: list[Memory] = []
            left_out = 0
            if query.with_versions:
                before = [one for one in versions.get(memory.identity, []) if one.revision < memory.revision]
                earlier = _newest(before)
                left_out = len(before) - len(earlier)
            found = vectors.get((memory.identity, memory.version))
            lines.append((memory, line_from_memory(memory, earlier, left_out, found)))
        return lines


def _newest(versions: Sequence[Memory]) -> list[Memory]:
    """Returns the last of the versions, as many as one line may hold."""
    size = 0
    for count, version in enumerate(reversed(versions)):
        size += len(version.content.value.encode())
        if size > MAX_VERSIONS_BYTES:
            return list(versions[len(versions) - count :])
    return list(versions)


def _cursor(moment: int, after: Identity, described: Mapping[str, JsonValue]) -> str:
    return encode_page_token((moment, *after), described)


def _described(scope: Scope, query: ExportQuery) -> Mapping[str, JsonValue]:
    # The whole filter: a condition that is added to it later must not be left out of what a cursor is of.
    wanted = {name: repr(value) for name, value in asdict(query.wanted).items()}
    return {
        "op": "export",
        "org": scope.org,
        "namespace": scope.namespace,
        "vectors": query.with_vectors,
        "versions": query.with_versions,
        **wanted,
    }
