"""Between the messages of context and the domain's own types."""

from typing import Final

from loom.memory.v1 import context_pb2 as pb
from loom_common.auth.claims import ReadScope
from loom_common.times import format_time
from loom_memory.context.app.blobs import FetchedPart, ParkedText
from loom_memory.context.app.packing import ContextPack, PackRequest
from loom_memory.context.domain.blobs import line_count, pointer
from loom_memory.context.domain.packing import FilledSection
from loom_memory.context.domain.sections import Mode, Section

_DEFAULT_BUDGET: Final = 2_000
_DEFAULT_RUNS: Final = 12


def pack_request_from_proto(request: pb.PackContextRequest) -> PackRequest:
    """Returns what is asked for."""
    included = {
        Section.KNOWLEDGE: request.include_knowledge,
        Section.CONVERSATIONS: request.include_conversations,
        Section.RUNS: request.include_runs,
    }
    return PackRequest(
        query=request.query,
        situation=request.situation,
        budget=request.token_budget if request.HasField("token_budget") else _DEFAULT_BUDGET,
        mode=Mode(request.mode) if request.HasField("mode") else Mode.TASK,
        only=tuple(Section(name) for name in dict.fromkeys(request.only_sections)),
        included=tuple(section for section, is_wanted in included.items() if is_wanted),
        includes_chunks=request.include_chunks,
        has_decisions=request.include_decisions if request.HasField("include_decisions") else True,
        runs_limit=request.runs_limit if request.HasField("runs_limit") else _DEFAULT_RUNS,
        read_scope=ReadScope(request.read_scope) if request.HasField("read_scope") else None,
        user_id=request.user_id if request.HasField("user_id") else None,
        session_id=request.session_id if request.HasField("session_id") else None,
        agent=request.agent if request.HasField("agent") else None,
        tags=tuple(request.tags),
    )


def pack_to_proto(pack: ContextPack, request: PackRequest) -> pb.PackContextResponse:
    """Returns the answer."""
    packed = pack.packed
    return pb.PackContextResponse(
        rendered=packed.text,
        sections=[_section(filled) for filled in packed.sections],
        stable_sections=[section.value for section in packed.stable],
        stable_prefix_chars=packed.prefix_chars,
        stable_hash=packed.prefix_hash,
        tokens_estimate=packed.tokens,
        token_budget=request.budget,
        fill_ratio=packed.tokens / request.budget,
        failed_sections=[
            pb.FailedSection(name=section.value, reason=pack.failed[section])
            for section in Section
            if section in pack.failed
        ],
        mode=request.mode.value,
        read_scope=pack.read_scope.value,
    )


def parked_to_proto(parked: ParkedText) -> pb.OffloadContextResponse:
    """Returns the answer."""
    blob = parked.blob
    return pb.OffloadContextResponse(
        blob_key=blob.key,
        pointer=pointer(blob.key, blob.content, blob.summary),
        summary=blob.summary,
        char_count=len(blob.content),
        line_count=line_count(blob.content),
        size_bytes=len(blob.content.encode("utf-8", "surrogatepass")),
        expires_at=format_time(blob.expires_at),
        stored=parked.stored,
    )


def fetched_to_proto(fetched: FetchedPart) -> pb.FetchContextResponse:
    """Returns the answer."""
    blob, part = fetched.blob, fetched.part
    return pb.FetchContextResponse(
        found=True,
        blob_key=blob.key,
        text=part.text,
        next_offset=part.next_offset,
        char_count=len(blob.content),
        line_count=line_count(blob.content),
        match_count=part.matches,
        summary=blob.summary,
        expires_at=format_time(blob.expires_at),
    )


def _section(filled: FilledSection) -> pb.PackedSection:
    return pb.PackedSection(
        name=filled.name.value,
        start_offset=filled.start,
        end_offset=filled.end,
        tokens_estimate=filled.tokens,
        items=[pb.PackedItem(id=entry.id, score=entry.score, is_cut=entry.is_cut) for entry in filled.entries],
        left_out_count=filled.left_out,
    )
