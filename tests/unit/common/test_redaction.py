import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from loom_common import redaction
from loom_common.redaction import MAX_VALUE_CHARS, SECRET, is_sensitive, scrub, scrub_lines, scrub_value

JWT = "eyJhbGciOiJFZERTQSIsImtpZCI6IjEifQ.eyJzdWIiOiJhQGIuYyJ9.c2lnbmF0dXJlLWJ5dGVz"
KEY = "sk-proj-abcDEF123456_7890"


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        (f"Authorization: Bearer {JWT}", JWT),
        (f"token={JWT}&x=1", JWT),
        (f"got {JWT} from peer", JWT),
        (f"x-loom-service: {JWT}", JWT),
        ("bearer abcdef123456", "abcdef123456"),
        ("Basic dXNlcjpwYXNz", "dXNlcjpwYXNz"),
        (f"key {KEY} refused", KEY),
        ("sk-ant-api03-AAAAbbbbCCCC", "sk-ant-api03-AAAAbbbbCCCC"),
        ("ghp_0123456789abcdefghij", "ghp_0123456789abcdefghij"),
        ("AKIAIOSFODNN7EXAMPLE", "AKIAIOSFODNN7EXAMPLE"),
        ("http://loom:hunter22@ch:8123/loom", "hunter22"),
        ('{"password": "hunter22"}', "hunter22"),
        ("password=hunter22 user=x", "hunter22"),
        ("{'api_key': 'hunter22'}", "hunter22"),
        ("set-cookie: sid=hunter22", "hunter22"),
        (
            '{"kty":"OKP","d":"nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A"}',
            "nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A",
        ),
        ("-----BEGIN PRIVATE KEY-----\nMC4CAQAw\n-----END PRIVATE KEY-----", "MC4CAQAw"),
        ("-----BEGIN PRIVATE KEY-----\nMC4CAQAw cut", "MC4CAQAw"),
    ],
)
def test_what_looks_like_a_secret_is_not_shown(text, secret):
    shown = scrub(text)
    assert secret not in shown
    assert SECRET in shown


@pytest.mark.parametrize(
    "text",
    [
        "max_tokens=2000 page_token=abcdef token_budget: 12",
        "embedding_tokens: 5, the token count grew",
        "task-12345678 and risk-assessment-document",
        "bearers of news; basic facts",
        "http://127.0.0.1:8123/loom?database=loom",
        "memory.set 01JQ3Z5Y8M2N4P6R8T0V2X4Z6B",
        "你好，世界",
    ],
)
def test_ordinary_text_is_left_as_it_is(text):
    assert scrub(text) == text


def test_a_secret_across_the_cut_does_not_show_in_part():
    text = "x" * (MAX_VALUE_CHARS - 10) + " " + JWT + "a" * 9000
    shown = scrub(text)
    assert "eyJ" not in shown
    assert len(shown) < MAX_VALUE_CHARS + 60


def test_values_stay_on_one_line_and_cannot_repaint_a_terminal():
    assert scrub("a\nb\r\tc\x1b[31m\u2028\u202e\x00") == "a\\nb\\r\\tc\\u001b[31m\\u2028\\u202e\\u0000"
    assert scrub_lines("a\nb\x1b") == "a\nb\\u001b"


def test_names_hide_their_values_at_any_depth():
    value = {"headers": {"Authorization": "x", "X-Loom-Service": "y", "accept": "z"}, "list": [{"api-key": "k"}]}
    assert scrub_value(value) == {
        "headers": {"Authorization": SECRET, "X-Loom-Service": SECRET, "accept": "z"},
        "list": [{"api-key": SECRET}],
    }


@pytest.mark.parametrize("name", ["token", "loom_token", "client_secret", "OPENAI_API_KEY", "x-loom-service", "jwt"])
def test_names_of_secrets_are_known(name):
    assert is_sensitive(name)


@pytest.mark.parametrize("name", ["next_page_token", "tokens", "input_tokens", "secretary", "key", "monkey"])
def test_other_names_are_not(name):
    assert not is_sensitive(name)


def test_values_of_any_kind_are_bounded_and_plain():
    deep = []
    for _ in range(100):
        deep = [deep]
    scrub_value(deep)
    assert scrub_value(b"secret bytes") == "<12 bytes>"
    assert scrub_value(SecretStr("x")) == SECRET
    assert len(scrub_value(list(range(1000)))) == 50
    assert scrub_value("", name="token") == ""
    assert scrub_value(True, name="secret") is True


@given(st.text())
def test_any_text_comes_out_as_one_encodable_line(text):
    shown = scrub(text)
    shown.encode("utf-8")
    assert len(shown.splitlines()) <= 1


# Pieces of secrets, in the cases and scripts that patterns without regard to case match too.
_PIECES = (
    *("-----BEGIN ", "PRIVATE KEY-----", "eyJ", "abcdefghijklmnopqrstuvwxyz", "0123456789ABCDEF", "Bearer ", "BASIC "),
    *(
        "sk-",
        "PK_",
        "\u212a-",
        "\u017fecret",
        "ghp_",
        "github_pat_",
        "xoxb-",
        "AIza",
        "ASIA",
        "hf_",
        "://",
        ":",
        "@",
        "=",
    ),
    *(
        '"d"',
        "'d'",
        "x-loom-service",
        "Authorization",
        "set-cookie",
        "api_key",
        "passwd",
        "token",
        "JWT",
        "private-key",
    ),
)


@given(st.lists(st.sampled_from(_PIECES) | st.text(max_size=3), max_size=8))
def test_no_rule_finds_anything_in_a_text_that_is_passed_over(parts):
    text = "".join(parts)
    if not redaction._SUSPECT.search(text):
        assert [rule for rule in redaction._RULES if rule.pattern.search(text)] == []
