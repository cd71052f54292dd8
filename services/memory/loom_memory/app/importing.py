"""Taking memories from lines: reading, embedding and storing at once, each on another batch."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Final

from loom_common.call import Scope
from loom_common.errors import LoomError, ModelCallsOff
from loom_memory.app.bulk import BulkItem, BulkPolicy, BulkWriter, analysed
from loom_memory.app.drafts import Draft, Outcome, Written
from loom_memory.app.embedding import Chunk, EmbeddedText, EmbeddingPort, ServedModel, stub_chunks, with_key
from loom_memory.app.text_gates import TextGates
from loom_memory.domain.keys import key_text
from loom_memory.domain.memory import Identity
from loom_memory.domain.records import Record, RecordVersion, is_mark, record_from_line

# Batches on their way at once: one is read, one embedded and one stored. More only take memory.
_AHEAD: Final = 3
# Texts of one request to the embedder. Source: chosen; enough for whole batches of the model, and its answer comes
# often enough that storing goes on meanwhile.
_EMBEDDED_AT_ONCE: Final = 256
_BOM: Final = b"\xef\xbb\xbf"

Narrow = Callable[[Identity], Identity]
"""Returns the identity that a caller may write for that of a record, or raises a `LoomError`."""


@dataclass(frozen=True, slots=True)
class LineOutcome:
    """What became of one line.

    Attributes:
        line: Its number in the whole import, from 1.
        key: Key of its memory; empty where it has none.
        outcome: What was stored, or why nothing was.
    """

    line: int
    key: str
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class _Read:
    """The lines of one batch: records and refusals by the numbers of their lines."""

    records: dict[int, Record]
    refused: dict[int, LoomError]


_Admitted = tuple[Draft, tuple[tuple[RecordVersion, Draft], ...]]


@dataclass(frozen=True, slots=True)
class _Prepared:
    """One batch, read and embedded: what can be stored, what the namespace refuses, and the model of the vectors."""

    read: _Read
    items: dict[int, BulkItem]
    refused: dict[int, Written]
    model: str


class MemoryImport:
    """Imports lines into a namespace."""

    def __init__(self, bulk: BulkWriter, gates: TextGates, embedding: EmbeddingPort) -> None:
        self._bulk = bulk
        self._gates = gates
        self._embedding = embedding

    async def run(
        self, scope: Scope, batches: AsyncIterator[Sequence[bytes]], policy: BulkPolicy, narrowed: Narrow
    ) -> AsyncGenerator[list[LineOutcome], None]:
        """Yields the outcomes of each batch once its memories are stored, in order.

        Args:
            scope: Namespace to write.
            batches: Lines without their ends.
            policy: How they are stored.
            narrowed: Returns the identity that the caller may write for that of a record, or raises.

        Raises:
            LoomError: The store or the embedder failed; what came before is stored, and the import can be repeated.
        """
        async with aclosing(self._prepared(scope, batches, policy, narrowed)) as prepared:
            async for task in prepared:
                batch = await task
                stored = await self._bulk.store(scope, list(batch.items.values()), batch.model, policy)
                outcomes: dict[int, LineOutcome] = {
                    number: LineOutcome(number, item.draft.identity.key, outcome)
                    for (number, item), outcome in zip(batch.items.items(), stored, strict=True)
                }
                for number, written in batch.refused.items():
                    outcomes[number] = LineOutcome(number, written.identity.key, written)
                for number, error in batch.read.refused.items():
                    outcomes[number] = LineOutcome(number, "", error)
                yield [outcomes[number] for number in sorted(outcomes)]

    async def _prepared(
        self, scope: Scope, batches: AsyncIterator[Sequence[bytes]], policy: BulkPolicy, narrowed: Narrow
    ) -> AsyncGenerator["asyncio.Task[_Prepared]", None]:
        """Yields the batches as tasks that read and embed them, some of them ahead of the one that is awaited."""
        ahead: list[asyncio.Task[_Prepared]] = []
        first = 1
        try:
            async for lines in batches:
                ahead.append(asyncio.create_task(self._prepare(scope, list(lines), first, policy, narrowed)))
                first += len(lines)
                if len(ahead) >= _AHEAD:
                    yield ahead.pop(0)
            while ahead:
                yield ahead.pop(0)
        finally:
            for task in ahead:
                task.cancel()
            if ahead:
                await asyncio.wait(ahead)

    async def _prepare(
        self, scope: Scope, lines: list[bytes], first: int, policy: BulkPolicy, narrowed: Narrow
    ) -> _Prepared:
        read = _bounded(await asyncio.to_thread(_read, lines, first), narrowed)
        served = await self._embedding.served_model()
        admitted, refused = await self._admit(scope, read)
        values = [draft.content.value for draft, _ in admitted.values()]
        words = asyncio.create_task(analysed(values), name="import-words")
        try:
            chunks = {number: _given(read.records[number], draft, served) for number, (draft, _) in admitted.items()}
            if not policy.is_dry:
                await self._embed(list(chunks.values()))
            texts = await words
        finally:
            words.cancel()
        items = {
            number: BulkItem(read.records[number], draft, earlier, chunks[number].whole(), text)
            for (number, (draft, earlier)), text in zip(admitted.items(), texts, strict=True)
        }
        return _Prepared(read, items, refused, served.name)

    async def _admit(self, scope: Scope, read: _Read) -> tuple[dict[int, _Admitted], dict[int, Written]]:
        """Returns what of the records the namespace lets be written, and why the others are not, by line.

        An earlier version that may not be written is left out of its memory's history.
        """
        drafts: list[Draft] = []
        for record in read.records.values():
            drafts += [_draft(record, version) for version in (record.current, *record.earlier)]
        found = iter((await self._gates.admit(scope, drafts)).drafts)
        admitted: dict[int, _Admitted] = {}
        refused: dict[int, Written] = {}
        for number, record in read.records.items():
            current = next(found)
            earlier = [(version, next(found)) for version in record.earlier]
            if isinstance(current, Written):
                refused[number] = current
            else:
                kept = tuple((version, draft) for version, draft in earlier if isinstance(draft, Draft))
                admitted[number] = current, kept
        return admitted, refused

    async def _embed(self, chunks: "Sequence[_Chunks]") -> None:
        """Fills in what has no vectors yet: values and what keys say, each text once."""
        wanted: dict[str, EmbeddedText] = {}
        texts = list(dict.fromkeys(text for found in chunks for text in found.wanted()))
        for start in range(0, len(texts), _EMBEDDED_AT_ONCE):
            part = texts[start : start + _EMBEDDED_AT_ONCE]
            try:
                wanted.update(zip(part, await self._embedding.embed_many(part), strict=True))
            except ModelCallsOff as error:
                wanted.update(dict.fromkeys(part, error))
        for found in chunks:
            found.fill(wanted)


class _Chunks:
    """The vectors of one record while they are gathered."""

    def __init__(self, draft: Draft, of_value: EmbeddedText | None, of_key: EmbeddedText | None) -> None:
        self._value = draft.content.value
        self._said = key_text(draft.identity.key)
        self._of_value = of_value
        self._of_key = of_key

    def wanted(self) -> list[str]:
        """Returns the texts that are to be embedded."""
        texts = [] if self._of_value is not None else [self._value]
        return texts if self._of_key is not None or not self._said else [*texts, self._said]

    def fill(self, embedded: Mapping[str, EmbeddedText]) -> None:
        """Takes the vectors of the texts that were wanted."""
        if self._of_value is None:
            self._of_value = embedded[self._value]
        if self._of_key is None and self._said:
            self._of_key = embedded[self._said]

    def whole(self) -> EmbeddedText:
        """Returns the chunks of the record; a stub where calls to models are switched off or none was made."""
        value = self._of_value
        found = value if value is None or self._of_key is None else with_key(value, self._of_key)
        return stub_chunks(self._value) if found is None or isinstance(found, ModelCallsOff) else found


def _draft(record: Record, version: RecordVersion) -> Draft:
    return Draft(
        identity=record.identity,
        content=version.content,
        stated=version.stated,
        has_own_key=record.has_own_key,
        verbatim=True,
    )


def _given(record: Record, draft: Draft, served: ServedModel) -> _Chunks:
    """Returns the vectors that a record brings, where they are of the served model and of the text that is stored."""
    vectors = record.vectors
    is_whole = draft.content.value == record.current.content.value
    if vectors is None or not is_whole or (vectors.model, vectors.dim) != (served.name, served.dim):
        return _Chunks(draft, None, None)
    of_value = [Chunk(one.start, one.end, one.vector) for one in vectors.chunks if not one.of_key]
    of_key = [Chunk(0, 0, one.vector, of_key=True) for one in vectors.chunks if one.of_key]
    return _Chunks(draft, of_value, of_key or None)


def _read(lines: Sequence[bytes], first: int) -> _Read:
    records: dict[int, Record] = {}
    refused: dict[int, LoomError] = {}
    for number, line in enumerate(lines, first):
        text = line.removeprefix(_BOM) if number == 1 else line
        text = text.strip(b" \t\r\n")
        if not text or is_mark(text):
            continue
        try:
            records[number] = record_from_line(text)
        except LoomError as error:
            refused[number] = error
    return _Read(records, refused)


def _bounded(read: _Read, narrowed: Narrow) -> _Read:
    """Returns the records under the identities that the caller may write; the others are refused."""
    records: dict[int, Record] = {}
    refused = dict(read.refused)
    for number, record in read.records.items():
        try:
            identity = narrowed(record.identity)
        except LoomError as error:
            refused[number] = error
            continue
        records[number] = record if identity == record.identity else _renamed(record, identity)
    return _Read(records, refused)


def _renamed(record: Record, identity: Identity) -> Record:
    return replace(record, identity=identity)
