"""Both providers through their official SDKs, against a stand-in: what is sent, what is read, how it fails."""

import traceback
from collections.abc import Callable

import pytest
from support.providers import (
    ANTHROPIC_MESSAGES,
    OPENAI_CHAT,
    TEST_KEY,
    Fault,
    ProviderStandIn,
    Reply,
    chat_completion,
    message,
)

from loom_common.providers import FailureKind, ProviderError
from loom_llm.domain.messages import LLMResult, ResponseFormat
from loom_llm.domain.prompts.structured_output import JSON_DIRECTIVE
from loom_llm.providers.retrying import retry_policy
from loom_llm.providers.shaped import ShapedClient

MakeClient = Callable[..., ShapedClient]

POLICY = retry_policy(attempts=4, max_wait_s=20.0, total_s=60.0)
JSON: ResponseFormat = {"type": "json_object"}
BOTH = pytest.mark.parametrize("provider", ["openai", "anthropic"])


async def test_openai_sends_messages_cap_and_key_and_reads_text_and_counts(
    stand_in: ProviderStandIn, make_client: MakeClient
) -> None:
    details = {"cached_tokens": 5}
    stand_in.script(Reply(body=chat_completion("hello", "gpt-6-luna-2026", prompt_tokens_details=details)))
    result = await make_client("openai").complete("be brief", "hi", 64)
    assert result == LLMResult(
        "hello", "openai", "gpt-6-luna-2026", input_tokens=11, output_tokens=7, cached_input_tokens=5,
        response_id="chatcmpl-1",
    )  # fmt: skip
    [sent] = stand_in.requests
    assert (sent.method, sent.path, sent.headers["authorization"]) == ("POST", OPENAI_CHAT, f"Bearer {TEST_KEY}")
    assert sent.json == {
        "model": "gpt-6-luna",
        "max_completion_tokens": 64,
        "temperature": 0.0,
        "reasoning_effort": "none",
        "messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}],
    }


async def test_anthropic_sends_a_cacheable_system_block_and_counts_cached_tokens_among_the_input(
    stand_in: ProviderStandIn, make_client: MakeClient
) -> None:
    counts = {"cache_read_input_tokens": 100, "cache_creation_input_tokens": 20}
    stand_in.script(Reply(body=message("hello", **counts)))
    result = await make_client("anthropic").complete("be brief", "hi", 64)
    assert result == LLMResult(
        "hello",
        "anthropic",
        "claude-haiku-4-5",
        input_tokens=131,
        output_tokens=7,
        cached_input_tokens=100,
        cache_write_tokens=20,
        response_id="msg_1",
    )
    [sent] = stand_in.requests
    assert (sent.method, sent.path, sent.headers["authorization"]) == (
        "POST",
        ANTHROPIC_MESSAGES,
        f"Bearer {TEST_KEY}",
    )
    assert sent.json == {
        "model": "claude-haiku-4-5",
        "max_tokens": 64,
        "temperature": 0.0,
        "system": [{"type": "text", "text": "be brief", "cache_control": {"type": "ephemeral"}}],
        "messages": [{"role": "user", "content": "hi"}],
    }


async def test_openai_passes_json_object_through(stand_in: ProviderStandIn, make_client: MakeClient) -> None:
    await make_client("openai").complete("answer in JSON", "hi", response_format=JSON)
    assert stand_in.requests[0].json["response_format"] == {"type": "json_object"}


async def test_anthropic_asks_for_json_in_words_and_takes_the_fence_off(
    stand_in: ProviderStandIn, make_client: MakeClient
) -> None:
    stand_in.script(Reply(body=message('```json\n{"a": "``` inside"}\n```')))
    result = await make_client("anthropic").complete("be brief", "hi", response_format=JSON)
    assert result.text == '{"a": "``` inside"}'
    system = stand_in.requests[0].json["system"]
    assert isinstance(system, list)
    assert system == [
        {"type": "text", "text": f"be brief\n\n{JSON_DIRECTIVE.text}", "cache_control": {"type": "ephemeral"}}
    ]


@BOTH
async def test_empty_instructions_are_not_sent(
    provider: str, stand_in: ProviderStandIn, make_client: MakeClient
) -> None:
    await make_client(provider).complete("", "hi")
    sent = stand_in.requests[0].json
    assert "system" not in sent
    assert sent["messages"] == [{"role": "user", "content": "hi"}]


@BOTH
async def test_a_large_cap_is_sent_as_it_is(provider: str, stand_in: ProviderStandIn, make_client: MakeClient) -> None:
    await make_client(provider).complete("", "hi", 131_072)
    assert 131_072 in stand_in.requests[0].json.values()


@BOTH
async def test_an_answer_without_text_is_an_empty_text(
    provider: str, stand_in: ProviderStandIn, make_client: MakeClient
) -> None:
    stand_in.script(Reply(body=chat_completion(None) if provider == "openai" else {**message(""), "content": []}))
    assert (await make_client(provider).complete("", "hi")).text == ""


@BOTH
@pytest.mark.parametrize("status", [400, 401, 403, 404, 408, 409, 413, 422, 429, 500, 502, 503, 504, 529])
async def test_an_http_error_is_a_failure_with_its_status_and_sent_once(
    provider: str, status: int, stand_in: ProviderStandIn, make_client: MakeClient
) -> None:
    stand_in.script(Reply.error(status, retry_after="3"))
    with pytest.raises(ProviderError) as caught:
        await make_client(provider).complete("", "hi")
    failure = caught.value
    assert (failure.provider, failure.kind, failure.status) == (provider, FailureKind.STATUS, status)
    assert failure.retry_after_s == 3.0
    assert POLICY.may_help(failure) == (status in {429, 500, 502, 503, 504, 529})
    assert len(stand_in.requests) == 1


@BOTH
async def test_a_failure_keeps_neither_the_providers_words_nor_the_key(
    provider: str, stand_in: ProviderStandIn, make_client: MakeClient
) -> None:
    stand_in.script(Reply.error(401, f"Incorrect API key provided: {TEST_KEY}"))
    with pytest.raises(ProviderError) as caught:
        await make_client(provider).complete("", "the prompt")
    shown = "".join(traceback.format_exception(caught.value))
    assert "Incorrect API key" not in shown
    assert TEST_KEY not in shown
    assert TEST_KEY not in repr(make_client(provider))


@BOTH
@pytest.mark.parametrize(
    ("fault", "kind", "timeout_s"),
    [
        (Fault.HANG, FailureKind.TIMEOUT, 0.2),
        (Fault.RESET, FailureKind.CONNECTION, 30),
        (Fault.HALF_BODY, FailureKind.CONNECTION, 30),
    ],
)
async def test_a_broken_transport_is_a_retryable_failure(
    provider: str,
    fault: Fault,
    kind: FailureKind,
    timeout_s: float,
    stand_in: ProviderStandIn,
    make_client: MakeClient,
) -> None:
    good = chat_completion("x") if provider == "openai" else message("x")
    stand_in.script(Reply(body=good, fault=fault))
    with pytest.raises(ProviderError) as caught:
        await make_client(provider, timeout_s=timeout_s).complete("", "hi")
    assert caught.value.kind is kind
    assert POLICY.may_help(caught.value)


@BOTH
async def test_a_provider_that_is_not_there_is_a_retryable_failure(provider: str, make_client: MakeClient) -> None:
    async with ProviderStandIn().running() as gone:
        url = gone.anthropic_url
    client = make_client(provider, url=f"{url}/v1" if provider == "openai" else url)
    with pytest.raises(ProviderError) as caught:
        await client.complete("", "hi")
    assert caught.value.kind is FailureKind.CONNECTION


@BOTH
@pytest.mark.parametrize(
    "reply",
    [
        Reply(body="{this is no JSON"),
        Reply(body="plain text", headers={"content-type": "text/plain"}),
        Reply(body="<html></html>", headers={"content-type": "text/html"}),
        Reply(body=[]),
        Reply(body=None),
        Reply(body={}),
        Reply(body={"choices": [], "content": None, "usage": None}),
        Reply(body={"choices": [{}], "content": "text", "usage": {}}),
        Reply(
            body={**message("x"), "choices": [{"message": {"content": 7}}], "content": [{"type": "text", "text": 7}]}
        ),
        Reply(body={**chat_completion("x"), **message("x"), "usage": {"prompt_tokens": "many", "input_tokens": -3}}),
    ],
)
async def test_an_answer_that_cannot_be_read_is_a_malformed_failure(
    provider: str, reply: Reply, stand_in: ProviderStandIn, make_client: MakeClient
) -> None:
    stand_in.script(reply)
    with pytest.raises(ProviderError) as caught:
        await make_client(provider).complete("", "hi")
    assert caught.value.kind is FailureKind.MALFORMED
    assert not POLICY.may_help(caught.value)
