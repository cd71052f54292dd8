"""Findings as the contract shows them."""

from loom.insights.v1 import mentor_pb2 as pb
from loom_insights.domain.namespace import Finding


def finding_to_proto(finding: Finding) -> pb.MentorFinding:
    """Returns a finding as the contract shows it."""
    return pb.MentorFinding(
        kind=finding.kind,
        severity=finding.severity,
        count=finding.count,
        message=finding.message,
        advice=finding.advice,
        subjects=[
            pb.MentorSubject(key=each.key, user_id=each.user_id, session_id=each.session_id, agent=each.agent)
            for each in finding.subjects
        ],
    )
