"""Settings of whom calls to models are for: what they read as, and the one line where they cannot be used."""

import pytest

from loom_common.model_calls.refusals import AnswerError, RefusalRule, answer_error, parse_refusals
from loom_common.settings import InferenceSettings, SettingsError

HEADERS = '{"x-agent": "{agent}"}'


def load(**variables: str) -> InferenceSettings:
    return InferenceSettings.load(environ={f"LOOM_{name}": value for name, value in variables.items()})


def test_nothing_is_said_unless_it_is_set() -> None:
    policy = load().inference_policy
    assert not policy.names_anyone
    assert policy.placeholders == frozenset()
    assert not policy.is_gateway("api.openai.com", 443)


@pytest.mark.parametrize(
    ("variables", "named"),
    [
        ({"INFERENCE_CUSTOMER_REQUIRED": "true"}, "LOOM_INFERENCE_CUSTOMER_HEADER"),
        ({"INFERENCE_CUSTOMER_HEADER": "x customer"}, "LOOM_INFERENCE_CUSTOMER_HEADER"),
        ({"INFERENCE_CUSTOMER_HEADER": "authorization"}, "LOOM_INFERENCE_CUSTOMER_HEADER"),
        ({"INFERENCE_FEATURE_HEADER": "x:y"}, "LOOM_INFERENCE_FEATURE_HEADER"),
        ({"INFERENCE_CUSTOMER_FORMAT": "cell-7"}, "LOOM_INFERENCE_CUSTOMER_FORMAT"),
        ({"INFERENCE_CUSTOMER_FORMAT": "{org}/{namespace}"}, "LOOM_INFERENCE_CUSTOMER_FORMAT"),
        ({"INFERENCE_FEATURE_MAP_JSON": "[]"}, "LOOM_INFERENCE_FEATURE_MAP_JSON"),
        ({"INFERENCE_IDENTITY_HEADERS_JSON": HEADERS}, "LOOM_INFERENCE_GATEWAY_HOSTS"),
        (
            {"INFERENCE_IDENTITY_HEADERS_JSON": '{"x": "{tenant}"}', "INFERENCE_GATEWAY_HOSTS": "gateway"},
            "LOOM_INFERENCE_TENANT_CLAIM",
        ),
        ({"INFERENCE_IDENTITY_HEADERS_JSON": '{"x": "{whom}"}'}, "LOOM_INFERENCE_IDENTITY_HEADERS_JSON"),
        ({"INFERENCE_GATEWAY_HOSTS": "https://gateway"}, "LOOM_INFERENCE_GATEWAY_HOSTS"),
        ({"INFERENCE_CUSTOMER_HEADER": "x-a", "INFERENCE_FEATURE_HEADER": "X-A"}, "LOOM_INFERENCE_"),
        ({"INFERENCE_IDENTITY_REFUSALS_JSON": '{"refused": [{"status": 403}]}'}, "LOOM_INFERENCE_IDENTITY_REFUSALS"),
        ({"INFERENCE_REFUSAL_COOLDOWN_SECONDS": "0"}, "LOOM_INFERENCE_REFUSAL_COOLDOWN_SECONDS"),
        ({"MODEL_CALLS_POLICY_MAX_STALE_SECONDS": "3"}, "LOOM_MODEL_CALLS_POLICY_MAX_STALE_SECONDS"),
        ({"MODEL_CALLS_POLICY_REFRESH_SECONDS": "58"}, "LOOM_MODEL_CALLS_POLICY_REFRESH_SECONDS"),
    ],
)
def test_what_cannot_be_used_stops_the_start_with_one_line_that_names_it(variables: dict[str, str], named: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load(**variables)
    line = str(caught.value)
    assert named in line
    assert "\n" not in line


def test_a_policy_reads_all_of_its_settings() -> None:
    policy = load(
        INFERENCE_CUSTOMER_HEADER="x-customer",
        INFERENCE_CUSTOMER_REQUIRED="true",
        INFERENCE_CUSTOMER_FORMAT="cell/{org}",
        INFERENCE_SYSTEM_CUSTOMER="the platform",
        INFERENCE_FEATURE_HEADER="x-feature",
        INFERENCE_FEATURE_MAP_JSON='{"memory.search": "recall"}',
        INFERENCE_IDENTITY_HEADERS_JSON='{"x-agent": "{agent}", "x-tenant": "{tenant}"}',
        INFERENCE_TENANT_CLAIM="tenant_id",
        INFERENCE_GATEWAY_HOSTS="Gateway.internal, 10.0.0.7:8443,[::1]:9",
        INFERENCE_IDENTITY_REFUSALS_JSON='{"wait": [{"status": 429, "type": "slow"}]}',
        INFERENCE_REFUSAL_COOLDOWN_SECONDS="7",
    ).inference_policy
    assert (policy.customer("acme"), policy.system_customer) == ("cell/acme", "the%20platform")
    assert (policy.feature("memory.search"), policy.feature("memory.set")) == ("recall", "memory.set")
    assert policy.placeholders == {"agent", "tenant"}
    assert policy.names_agent
    assert policy.refusals.wait == (RefusalRule(429, type="slow"),)
    assert policy.refusals.refused == ()
    assert policy.cooldown_s == 7
    hosts = [("gateway.internal", 443), ("GATEWAY.internal", 80), ("10.0.0.7", 8443), ("::1", 9)]
    assert all(policy.is_gateway(*host) for host in hosts)
    others = [("10.0.0.7", 443), ("gateway.internal.example.org", 443), ("x.gateway.internal", 443), ("::1", 10)]
    assert not any(policy.is_gateway(*host) for host in others)


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"denied": []}',
        '{"refused": {}}',
        '{"refused": [[]]}',
        '{"refused": [{"status": 200, "code": "x"}]}',
        '{"refused": [{"status": true, "code": "x"}]}',
        '{"refused": [{"code": "x"}]}',
        '{"refused": [{"status": 403, "code": ""}]}',
        '{"refused": [{"status": 403, "code": 7}]}',
        '{"refused": [{"status": 403, "code": "x", "words": "y"}]}',
    ],
)
def test_a_table_of_refusals_that_could_match_too_much_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_refusals(text)


def test_every_field_of_an_entry_must_match_exactly() -> None:
    [rule] = parse_refusals('{"refused": [{"status": 429, "type": "billing", "message": "Over budget"}]}').refused
    assert rule.matches(429, AnswerError("any", "billing", "Over budget"))
    assert not rule.matches(403, AnswerError(None, "billing", "Over budget"))
    assert not rule.matches(429, AnswerError(None, "billing", "Over budget today"))
    assert not rule.matches(429, AnswerError(None, None, "Over budget"))


@pytest.mark.parametrize("body", [b"", b"x", b"[]", b'{"error": "x"}', b'{"code": "x"}', b'{"error": {"code": 7}}'])
def test_a_body_of_another_shape_says_nothing(body: bytes) -> None:
    assert answer_error(body) == AnswerError()
