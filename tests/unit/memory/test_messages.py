from datetime import UTC, datetime

import pytest

from loom.memory.v1 import memory_pb2 as pb
from loom_common.call import Scope
from loom_common.errors import InvalidArgument
from loom_memory.api.messages import draft_from_proto, drafts_from_proto, memory_to_proto, result_to_proto
from loom_memory.app.drafts import Draft
from loom_memory.domain.memory import Content, Identity, Memory


def test_drafts_without_key_get_the_same_key_for_the_same_content_alone() -> None:
    drafts = [draft_from_proto(pb.SetMemoryRequest(value=value)) for value in ("v", "v", "w")]
    keys = [draft.identity.key for draft in drafts]
    assert keys[0] == keys[1] != keys[2]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-03-01", datetime(2026, 3, 1, tzinfo=UTC)),
        ("2026-03-01T02:00:00", datetime(2026, 3, 1, 2, tzinfo=UTC)),
        ("2026-03-01T10:00:00.123456+08:00", datetime(2026, 3, 1, 2, 0, 0, 123000, tzinfo=UTC)),
    ],
)
def test_a_time_is_utc_and_as_precise_as_the_store(text: str, expected: datetime) -> None:
    draft = draft_from_proto(pb.SetMemoryRequest(value="v", event_time=text))
    assert draft.content.event_time == expected


def test_what_is_absent_has_its_default_and_a_zero_is_kept() -> None:
    assert draft_from_proto(pb.SetMemoryRequest(value="v")).content == Content("v", kind="note", importance=0.5)
    assert draft_from_proto(pb.SetMemoryRequest(value="v", importance=0.0)).content.importance == 0.0
    assert draft_from_proto(pb.SetMemoryRequest(value="v", expected_version=0)).expected_version == 0
    assert draft_from_proto(pb.SetMemoryRequest(value="v")).expected_version is None


def test_a_bad_item_is_refused_by_itself() -> None:
    drafts = drafts_from_proto(
        [
            pb.MemoryInput(key="a", value="good"),
            pb.MemoryInput(key="b", value="x" * 65_537),
            pb.MemoryInput(key="c", value=""),
            pb.MemoryInput(key="d", value="v", event_time="yesterday"),
            pb.MemoryInput(key="e", value="é" * 32_768),
        ]
    )
    assert [isinstance(draft, Draft) for draft in drafts] == [True, False, False, False, True]
    refused = drafts[1]
    assert isinstance(refused, InvalidArgument)
    result = result_to_proto("b", refused)
    assert (result.key, result.reason, result.version) == ("b", "INVALID_ARGUMENT", 0)
    assert result.message


def test_a_memory_shows_its_times_in_one_form_and_nothing_for_an_absent_one() -> None:
    moment = datetime(2026, 3, 1, 2, tzinfo=UTC)
    message = memory_to_proto(
        Memory(Scope("acme", "team"), Identity("k", "u"), Content("v"), "human:ann", 3, 2**63, moment, moment)
    )
    assert (message.created_at, message.event_time, message.expires_at) == ("2026-03-01T02:00:00.000Z", "", "")
    assert (message.version, message.namespace, message.user_id) == (3, "team", "u")
