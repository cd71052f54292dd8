"""What a namespace lets be written."""

import pytest

from loom.identity.v1 import identity_pb2 as pb
from loom_common.auth.directory import policy_from_proto, policy_to_proto
from loom_common.errors import InvalidArgument
from loom_common.write_policy import ANYTHING, Treatment, WritePolicy, require_patterns

SOME = WritePolicy(("word",), ("p+",), Treatment.BLOCK, Treatment.REDACT, duplicates=False, conflicts=False)


@pytest.mark.parametrize("policy", [ANYTHING, SOME], ids=["default", "some"])
def test_a_policy_comes_back_as_it_was_kept_and_as_it_was_sent(policy: WritePolicy) -> None:
    assert WritePolicy.from_json(policy.to_json()) == policy
    assert policy_from_proto(policy_to_proto(policy) or pb.WritePolicy()) == policy


def test_what_a_newer_build_added_is_passed_over() -> None:
    assert WritePolicy.from_json('{"secrets": "block", "tomorrow": 1}') == WritePolicy(secrets=Treatment.BLOCK)


@pytest.mark.parametrize("pattern", ["(", "(?<=x)y", r"(x)\1", "(((a{100}){100}){100}){100}"])
def test_a_pattern_that_cannot_run_safely_is_refused_by_its_place(pattern: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        require_patterns(["fine", pattern], "write_policy.blocked_patterns")
    assert caught.value.fields[0].field == "write_policy.blocked_patterns[1]"
