"""Between the messages of profiles and the domain's own types."""

from loom.memory.v1 import profile_pb2 as pb
from loom_common.times import format_time
from loom_memory.profiles.domain.schemas import FieldType, ProfileField
from loom_memory.profiles.domain.sections import ProfileSection


def section_to_proto(section: ProfileSection) -> pb.ProfileSection:
    """Returns one version of a section."""
    return pb.ProfileSection(
        label=section.label,
        value=section.value,
        user_id=section.user_id,
        agent=section.agent,
        version=section.version,
        origin=section.origin.value,
        evidence=[
            pb.ProfileEvidence(key=one.key, user_id=one.user_id, session_id=one.session_id) for one in section.evidence
        ],
        actor=section.actor,
        updated_at=format_time(section.updated_at),
        removed=section.is_removed,
    )


def field_to_proto(field: ProfileField) -> pb.ProfileField:
    """Returns one field of a schema."""
    return pb.ProfileField(
        label=field.label,
        type=field.type.value,
        description=field.description,
        choices=field.choices,
        max_chars=field.max_chars,
    )


def field_from_proto(field: pb.ProfileField) -> ProfileField:
    """Returns one field as it was asked for."""
    return ProfileField(
        field.label, FieldType(field.type or FieldType.TEXT), field.description, tuple(field.choices), field.max_chars
    )
