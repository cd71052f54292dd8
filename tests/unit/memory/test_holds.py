"""What a job leaves as it is, and which settings keep the database from calling a provider itself."""

import pytest
from support.memory import AGENTS, NAMELESS, gate_of

from loom_common.call import Scope
from loom_common.clock import FakeClock
from loom_common.errors import ModelCallDeferred, ModelCallRefused, ModelCallsOff
from loom_common.model_calls.headers import parse_identity_headers
from loom_common.model_calls.policy import InferencePolicy
from loom_common.model_calls.switch import FakeSwitch
from loom_memory.app.holds import WriterHolds
from loom_memory.domain.memory import Identity
from loom_memory.domain.writers import Held, Writer
from loom_memory.settings import MemorySettings
from loom_memory.store.rewrites import WaitingText

USERS = InferencePolicy(identity_headers=parse_identity_headers('{"x-user":"{user_id}"}'))


def text(actor: str, *, org: str = "acme", user_id: str = "") -> WaitingText:
    return WaitingText(Scope(org, "team"), Identity("k", user_id), 1, "garden roses", actor=actor)


def test_a_writer_is_held_until_its_time_is_over_and_no_other() -> None:
    clock = FakeClock()
    holds = WriterHolds(gate_of(AGENTS), clock)
    assert holds.hold(text("process:a", user_id="u1"), ModelCallRefused("x", retry_after_s=40)) == 40
    assert isinstance(holds.reason(text("process:a", user_id="u2")), ModelCallRefused)
    assert holds.reason(text("process:b")) is None
    assert holds.reason(text("process:a", org="zeta")) is None
    assert holds.now() == Held(frozenset(), (Writer("acme", "team", "process:a"),), by_user=False)
    clock.advance(40)
    assert holds.reason(text("process:a")) is None
    assert holds.now().writers == ()


def test_users_of_a_writer_are_told_apart_where_calls_name_them() -> None:
    holds = WriterHolds(gate_of(USERS), FakeClock())
    holds.hold(text("process:a", user_id="u1"), ModelCallRefused("x"))
    assert holds.reason(text("process:a", user_id="u2")) is None
    assert holds.now() == Held(frozenset(), (Writer("acme", "team", "process:a", "u1"),), by_user=True)


def test_a_hold_that_names_no_time_lasts_as_the_policy_says_and_a_short_one_until_the_next_look() -> None:
    holds = WriterHolds(gate_of(InferencePolicy(cooldown_s=77)), FakeClock())
    assert holds.hold(text("process:a"), ModelCallRefused("x")) == 77
    assert holds.hold(text("process:a"), ModelCallDeferred("x")) == 10


def test_an_organisation_that_is_off_is_held_whole_whether_the_switch_is_known_here_or_not() -> None:
    clock = FakeClock()
    holds = WriterHolds(gate_of(NAMELESS, FakeSwitch("known")), clock)
    holds.hold(text("process:a", org="told"), ModelCallsOff("x"))
    assert isinstance(holds.reason(text("process:b", org="told")), ModelCallsOff)
    assert holds.now().orgs == {"known", "told"}
    clock.advance(300)
    assert holds.now().orgs == {"known"}


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({}, ()),
        ({"LOOM_INFERENCE_FEATURE_HEADER": "x-feature"}, ()),
        ({"LOOM_INFERENCE_CUSTOMER_HEADER": "x-org"}, ("LOOM_INFERENCE_CUSTOMER_HEADER",)),
        (
            {"LOOM_INFERENCE_CUSTOMER_HEADER": "x-org", "LOOM_INFERENCE_CUSTOMER_REQUIRED": True},
            ("LOOM_INFERENCE_CUSTOMER_HEADER", "LOOM_INFERENCE_CUSTOMER_REQUIRED"),
        ),
        (
            {"LOOM_INFERENCE_IDENTITY_HEADERS_JSON": '{"x-a":"{agent}"}', "LOOM_INFERENCE_GATEWAY_HOSTS": "gateway"},
            ("LOOM_INFERENCE_IDENTITY_HEADERS_JSON",),
        ),
    ],
    ids=str,
)
def test_settings_by_which_calls_say_whom_they_are_for_are_named(
    given: dict[str, object], named: tuple[str, ...]
) -> None:
    assert MemorySettings(**given).identifying == named  # type: ignore[arg-type]  # by their variables' names
