"""Between the messages of sessions and the domain's own types."""

from loom.memory.v1 import session_pb2 as pb
from loom_common.times import format_optional_time, format_time
from loom_memory.sessions.domain.briefs import SessionBrief
from loom_memory.sessions.domain.runs import RunEntry
from loom_memory.sessions.domain.working import WorkingItem


def item_to_proto(item: WorkingItem) -> pb.WorkingItem:
    """Returns one item of a working memory."""
    return pb.WorkingItem(
        label=item.label,
        value=item.value,
        version=item.version,
        actor=item.actor,
        updated_at=format_time(item.updated_at),
        expires_at=format_time(item.expires_at),
    )


def brief_to_proto(brief: SessionBrief) -> pb.SessionBrief:
    """Returns one version of a brief."""
    return pb.SessionBrief(
        user_id=brief.session.user_id,
        session_id=brief.session.session_id,
        agent=brief.agent,
        text=brief.text,
        version=brief.version,
        origin=brief.origin.value,
        model=brief.model,
        memory_keys=[one.key for one in brief.memories],
        turn_count=brief.turns,
        actor=brief.actor,
        updated_at=format_time(brief.updated_at),
    )


def run_to_proto(run: RunEntry) -> pb.RunEntry:
    """Returns one run."""
    return pb.RunEntry(
        run_id=run.run_id,
        agent=run.agent,
        status=run.status.value,
        summary=run.summary,
        user_id=run.session.user_id,
        session_id=run.session.session_id,
        started_at=format_time(run.started_at),
        ended_at=format_optional_time(run.ended_at),
        actor=run.actor,
        updated_at=format_time(run.updated_at),
    )
