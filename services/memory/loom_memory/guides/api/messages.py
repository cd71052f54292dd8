"""Between the messages of guides and the domain's own types."""

from loom.memory.v1 import guide_pb2 as pb
from loom_common.times import format_optional_time, format_time
from loom_memory.guides.domain.findings import Finding
from loom_memory.guides.domain.guide import Guide
from loom_memory.guides.domain.health import Health


def guide_to_proto(guide: Guide) -> pb.NamespaceGuide:
    """Returns one version of a guide."""
    return pb.NamespaceGuide(
        text=guide.text, version=guide.revision, actor=guide.actor, updated_at=format_time(guide.updated_at)
    )


def finding_to_proto(finding: Finding) -> pb.Finding:
    """Returns one finding."""
    return pb.Finding(
        kind=finding.kind.value,
        severity=finding.severity.value,
        count=finding.count,
        message=finding.message,
        advice=finding.advice,
        subjects=[
            pb.FindingSubject(key=subject.key, user_id=subject.user_id, session_id=subject.session_id, agent=agent)
            for subject, agent in finding.subjects
        ],
    )


def health_to_proto(health: Health) -> pb.NamespaceHealth:
    """Returns the numbers."""
    return pb.NamespaceHealth(
        memory_count=health.memories,
        kinds=[pb.NamedCount(name=kind.name, count=kind.count) for kind in health.kinds],
        user_count=health.users,
        session_count=health.sessions,
        agent_count=health.agents,
        pinned_count=health.pinned,
        ended_count=health.ended,
        written_week_count=health.written_week,
        shown_month_count=health.shown_month,
        open_conflict_count=health.open_conflicts,
        missing_vector_count=health.missing_vectors,
        document_count=health.documents,
        queued_count=health.queued,
        last_write_at=format_optional_time(health.last_write_at),
    )
