"""Between messages and what is known of memories beside their text."""

from loom.memory.v1 import memory_pb2 as pb
from loom_common.times import format_optional_time, format_time
from loom_memory.api.messages import memory_to_proto
from loom_memory.app.inspection import Inspection, Provenance, Related
from loom_memory.domain.conflict import Mark
from loom_memory.domain.memory import Identity
from loom_memory.store.signals import Signals


def name_to_proto(identity: Identity) -> pb.MemoryName:
    """Returns the message of a name."""
    return pb.MemoryName(key=identity.key, user_id=identity.user_id, session_id=identity.session_id)


def mark_to_proto(mark: Mark) -> pb.MemoryConflict:
    """Returns the message of a conflict."""
    return pb.MemoryConflict(
        conflict_id=mark.conflict_id,
        newer=name_to_proto(mark.newer),
        older=name_to_proto(mark.older),
        ends_at=format_time(mark.ends_at),
        similarity=round(mark.cosine, 4),
        state=mark.state.value,
        resolution=mark.resolution,
        resolved_by=mark.resolved_by,
        note=mark.note,
        created_at=format_time(mark.created_at),
        updated_at=format_time(mark.updated_at),
    )


def signals_to_proto(signals: Signals) -> pb.MemorySignals:
    """Returns the message of what happened to a memory."""
    return pb.MemorySignals(
        reinforced_count=signals.repeated,
        useful_count=signals.useful,
        not_useful_count=signals.not_useful,
        wrong_count=signals.wrong,
        last_at=format_optional_time(signals.last_at),
    )


def inspection_to_proto(found: Inspection) -> pb.InspectMemoryResponse:
    """Returns the message of all that is known of a memory."""
    return pb.InspectMemoryResponse(
        found=True,
        memory=memory_to_proto(found.memory),
        versions_count=found.versions,
        vectors=[
            pb.MemoryVectors(embedding_model=each.model, chunks_count=each.chunks, dim=each.dim, of_key=each.of_key)
            for each in found.vectors
        ],
        recogniser=found.memory.recogniser,
        conflicts=[mark_to_proto(mark) for mark in found.conflicts],
        signals=signals_to_proto(found.signals),
        exposures_count=found.exposures,
    )


def provenance_to_proto(found: Provenance) -> pb.GetMemoryProvenanceResponse:
    """Returns the message of where a memory comes from."""
    memory = found.memory
    return pb.GetMemoryProvenanceResponse(
        found=True,
        actor=memory.actor,
        agent=memory.content.agent,
        speaker=memory.content.speaker,
        source=memory.content.source,
        request_id=memory.request_id,
        version=memory.revision,
        updated_at=format_time(memory.updated_at),
        first_actor=found.first_actor,
        created_at=format_time(memory.created_at),
        derived_from=[related_to_proto(each) for each in found.derived_from],
        derived=[related_to_proto(each) for each in found.derived],
    )


def related_to_proto(related: Related) -> pb.RelatedMemory:
    """Returns the message of a memory that another was made of, or that was made of it."""
    return pb.RelatedMemory(
        key=related.identity.key,
        user_id=related.identity.user_id,
        session_id=related.identity.session_id,
        present=related.revision > 0,
        version=related.revision,
    )
