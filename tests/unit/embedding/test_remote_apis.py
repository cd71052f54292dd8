"""Both providers over HTTP, OpenAI through its official SDK: what is sent, what is read, how it fails."""

import asyncio
import gzip
import json
import traceback
import zlib
from collections.abc import Callable

import numpy as np
import pytest
from pydantic import JsonValue
from support.embedding import MakeRig
from support.providers import (
    OPENAI_EMBEDDINGS,
    TEST_KEY,
    Fault,
    ProviderStandIn,
    Received,
    Reply,
    embedding_of,
    gemini_embeddings,
    openai_embeddings,
    texts_of,
)

from loom_common.call import Call, bind
from loom_common.errors import ProviderFailed
from loom_common.providers import FailureKind, ProviderError
from loom_common.providers.http import MAX_ANSWER_BYTES
from loom_embedding.domain.vectors import MalformedEmbedding, unit_vector
from loom_embedding.providers.api import Refused
from loom_embedding.providers.gemini import GeminiApi
from loom_embedding.providers.openai import NO_KEY, OpenAIApi

BOTH = pytest.mark.parametrize("provider", ["openai", "gemini"])
GEMINI_PATH = "/v1beta/models/gemini-embedding-001:batchEmbedContents"


def good(provider: str, request: Received, rows: list[list[float]] | None = None) -> Reply:
    make = openai_embeddings if provider == "openai" else gemini_embeddings
    return Reply(body=make(request.json, rows))


async def test_openai_is_asked_for_the_width_and_for_bytes_instead_of_numbers(
    stand_in: ProviderStandIn, rig: MakeRig
) -> None:
    await rig("openai").api.embed(["one", "two"])
    [sent] = stand_in.requests
    assert (sent.method, sent.path, sent.headers["authorization"]) == ("POST", OPENAI_EMBEDDINGS, f"Bearer {TEST_KEY}")
    assert sent.json == {
        "model": "text-embedding-3-small",
        "input": ["one", "two"],
        "dimensions": 8,
        "encoding_format": "base64",
    }


async def test_no_variable_that_the_sdk_reads_by_itself_changes_what_openai_is_sent(
    stand_in: ProviderStandIn, rig: MakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    foreign = {
        "OPENAI_CUSTOM_HEADERS": "x-foreign: yes\nauthorization: Bearer sk-foreign",
        "OPENAI_ORG_ID": "org-foreign",
        "OPENAI_PROJECT_ID": "project-foreign",
        "OPENAI_BASE_URL": "http://127.0.0.1:1/v1",
        "OPENAI_API_KEY": "sk-foreign",
    }
    for variable in foreign:
        monkeypatch.delenv(variable, raising=False)
    await rig("openai").api.embed(["one"])
    for variable, value in foreign.items():
        monkeypatch.setenv(variable, value)
    await rig("openai").api.embed(["one"])
    plain, other = [(one.path, dict(one.headers), one.json) for one in stand_in.requests]
    assert plain == other


async def test_gemini_is_asked_for_the_width_with_the_key_in_a_header(stand_in: ProviderStandIn, rig: MakeRig) -> None:
    await rig("gemini").api.embed(["one"])
    [sent] = stand_in.requests
    assert (sent.method, sent.path, sent.headers["x-goog-api-key"]) == ("POST", GEMINI_PATH, TEST_KEY)
    assert sent.json == {
        "requests": [
            {
                "model": "models/gemini-embedding-001",
                "outputDimensionality": 8,
                "content": {"parts": [{"text": "one"}]},
            }
        ]
    }


async def test_without_a_width_none_is_asked_for_and_without_a_key_none_that_is_one(stand_in: ProviderStandIn) -> None:
    common = {"timeout_s": 5.0, "connect_timeout_s": 5.0}
    openai = OpenAIApi("m", None, NO_KEY, base_url=stand_in.openai_url, **common)
    gemini = GeminiApi("models/m", None, None, base_url=stand_in.gemini_url, **common)
    for api in (openai, gemini):
        await api.embed(["one"])
        await api.aclose()
    first, second = stand_in.requests
    assert "dimensions" not in first.json
    assert "x-goog-api-key" not in second.headers
    assert second.path == "/v1beta/models/m:batchEmbedContents"


@BOTH
async def test_vectors_come_in_the_order_of_the_texts_of_unit_length_and_their_tokens_are_counted(
    provider: str, stand_in: ProviderStandIn, rig: MakeRig
) -> None:
    texts = [f"text {number}" for number in range(250)]
    with bind(Call()) as call:
        vectors = await rig(provider).embedder.embed_many(texts)
    for text, vector in zip(texts, vectors, strict=True):
        assert np.allclose(vector, unit_vector(embedding_of(text, 8), 8), atol=1e-6)
        assert vector.dtype == np.float32
    assert sorted(len(texts_of(request)) for request in stand_in.requests) == [50, 100, 100]
    if provider == "openai":
        assert call.usage.embedding_tokens == 750
        assert call.usage.upstream_cost_usd == pytest.approx(750 / 1000 * 0.00002)
        assert call.usage.model == "text-embedding-3-small"
    else:
        # It does not say what it counted.
        assert (call.usage.embedding_tokens, call.usage.upstream_cost_usd) == (0, 0.0)


async def test_answers_out_of_order_are_put_in_order_by_their_index(stand_in: ProviderStandIn, rig: MakeRig) -> None:
    def reversed_answer(request: Received) -> Reply:
        body = openai_embeddings(request.json)
        assert isinstance(body["data"], list)
        return Reply(body={**body, "data": body["data"][::-1]})

    stand_in.rule = reversed_answer
    first, second = await rig("openai").embedder.embed_many(["one", "two"])
    assert np.allclose(first, unit_vector(embedding_of("one", 8), 8), atol=1e-6)
    assert np.allclose(second, unit_vector(embedding_of("two", 8), 8), atol=1e-6)


@BOTH
async def test_numbers_instead_of_bytes_are_read_as_well(
    provider: str, stand_in: ProviderStandIn, rig: MakeRig
) -> None:
    stand_in.rule = lambda request: Reply(
        body=(openai_embeddings if provider == "openai" else gemini_embeddings)(
            {**request.json, "encoding_format": "float"}
        )
    )
    vector = await rig(provider).embedder.embed("one")
    assert np.allclose(vector, unit_vector(embedding_of("one", 8), 8), atol=1e-6)


@BOTH
async def test_an_empty_text_is_sent_as_a_space(provider: str, stand_in: ProviderStandIn, rig: MakeRig) -> None:
    await rig(provider).embedder.embed_many(["", "one"])
    assert texts_of(stand_in.requests[0]) == [" ", "one"]


@BOTH
async def test_a_redirect_is_followed(provider: str, stand_in: ProviderStandIn, rig: MakeRig) -> None:
    target = OPENAI_EMBEDDINGS if provider == "openai" else GEMINI_PATH
    stand_in.script(Reply(307, headers={"location": target}))
    assert len(await rig(provider).embedder.embed("one")) == 8
    assert len(stand_in.requests) == 2


@BOTH
async def test_a_redirect_to_another_server_is_not_followed(
    provider: str, stand_in: ProviderStandIn, rig: MakeRig
) -> None:
    async with ProviderStandIn().running() as other:
        path = OPENAI_EMBEDDINGS if provider == "openai" else GEMINI_PATH
        stand_in.script(Reply(307, headers={"location": f"http://127.0.0.1:{other.port}{path}"}))
        with pytest.raises(ProviderFailed):
            await rig(provider).embedder.embed("one")
        assert other.requests == []
    assert len(stand_in.requests) == 1


@BOTH
@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (Reply(fault=Fault.HANG), FailureKind.TIMEOUT),
        (Reply(fault=Fault.RESET), FailureKind.CONNECTION),
        (Reply(body={"half": "of it"}, fault=Fault.HALF_BODY), FailureKind.CONNECTION),
        (Reply(body=b"no gzip at all", headers={"content-encoding": "gzip"}), FailureKind.CONNECTION),
        (Reply(body=gzip.compress(b"{}" * 99)[:-9], headers={"content-encoding": "gzip"}), None),
        (Reply(body="{this is no JSON"), FailureKind.MALFORMED),
        (Reply(body="<html></html>", headers={"content-type": "text/html"}), FailureKind.MALFORMED),
        (Reply(body=[]), FailureKind.MALFORMED),
        (Reply(body=None), FailureKind.MALFORMED),
        (Reply(body={"data": 7, "embeddings": 7}), FailureKind.MALFORMED),
        (Reply(body={"data": [7], "embeddings": [7]}), FailureKind.MALFORMED),
        (Reply(body="[" * 100_000), FailureKind.MALFORMED),
        (Reply(302, headers={"location": "/elsewhere"}), FailureKind.STATUS),
        (Reply(307), FailureKind.STATUS),
        (Reply.error(401), FailureKind.STATUS),
    ],
)
async def test_every_failure_has_its_kind(
    provider: str, reply: Reply, kind: FailureKind | None, stand_in: ProviderStandIn, rig: MakeRig
) -> None:
    stand_in.script(reply)
    with pytest.raises(ProviderError) as caught:
        await rig(provider, timeout_s=0.2 if reply.fault is Fault.HANG else 30).api.embed(["one"])
    assert caught.value.provider == provider
    if kind is None:  # unpacked, it is no JSON; not unpacked, it broke off
        assert caught.value.kind in {FailureKind.MALFORMED, FailureKind.CONNECTION}
    else:
        assert caught.value.kind is kind


@BOTH
async def test_a_number_that_is_none_of_a_floats_is_a_malformed_answer(
    provider: str, stand_in: ProviderStandIn, rig: MakeRig
) -> None:
    request = {"requests": [{"content": {"parts": [{"text": "one"}]}}]}
    stand_in.rule = lambda _: Reply(
        body=(openai_embeddings if provider == "openai" else gemini_embeddings)(
            {**request, "input": ["one"]}, [[10**400] * 8]
        )
    )
    with pytest.raises((ProviderError, MalformedEmbedding)):
        await rig(provider).embedder.embed("one")


@BOTH
@pytest.mark.parametrize(
    ("body", "encoding"),
    [
        (b" " * (MAX_ANSWER_BYTES + 1), ""),
        (gzip.compress(b" " * (MAX_ANSWER_BYTES + 1)), "gzip"),
        (zlib.compress(b" " * (MAX_ANSWER_BYTES + 1)), "deflate"),
        (b"never asked for", "br"),
    ],
    ids=["plain", "gzip", "deflate", "brotli"],
)
async def test_an_answer_without_end_is_broken_off_before_it_fills_the_memory(
    provider: str, body: bytes, encoding: str, stand_in: ProviderStandIn, rig: MakeRig
) -> None:
    stand_in.script(Reply(body=body, headers={"content-encoding": encoding} if encoding else {}))
    with pytest.raises(ProviderError) as caught:
        await rig(provider).api.embed(["one"])
    assert caught.value.kind is FailureKind.CONNECTION


@BOTH
@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress])
async def test_a_packed_answer_is_read(
    provider: str, pack: Callable[[bytes], bytes], stand_in: ProviderStandIn, rig: MakeRig
) -> None:
    def packed(request: Received) -> Reply:
        body = json.dumps(good(provider, request).body).encode()
        return Reply(body=pack(body), headers={"content-encoding": "gzip" if pack is gzip.compress else "deflate"})

    stand_in.rule = packed
    vector = await rig(provider).embedder.embed("one")
    assert np.allclose(vector, unit_vector(embedding_of("one", 8), 8), atol=1e-6)


@BOTH
async def test_a_provider_that_is_not_there_is_a_failed_connection(provider: str) -> None:
    async with ProviderStandIn().running() as gone:
        pass
    more = {"timeout_s": 5.0, "connect_timeout_s": 5.0}
    api: OpenAIApi | GeminiApi
    if provider == "openai":
        api = OpenAIApi("m", 8, TEST_KEY, base_url=gone.openai_url, **more)
    else:
        api = GeminiApi("m", 8, TEST_KEY, base_url=gone.gemini_url, **more)
    with pytest.raises(ProviderError) as caught:
        await api.embed(["one"])
    await api.aclose()
    assert caught.value.kind is FailureKind.CONNECTION


@BOTH
@pytest.mark.parametrize("rows", [[], [[1.0] * 8], [[1.0] * 8] * 3])
async def test_another_number_of_vectors_than_texts_is_a_refused_request(
    provider: str, rows: list[list[float]], stand_in: ProviderStandIn, rig: MakeRig
) -> None:
    stand_in.rule = lambda request: good(provider, request, rows)
    with pytest.raises(Refused) as caught:
        await rig(provider).api.embed(["one", "two"])
    assert caught.value.kind is FailureKind.MALFORMED


@BOTH
@pytest.mark.parametrize(
    ("message", "at"),
    [
        ("Invalid 'input[3]': too long", 3),
        ("* BatchEmbedContents.requests[12].content: empty", 12),
        ("no", None),
    ],
)
async def test_the_place_of_a_refused_text_is_read_and_the_words_are_not_kept(
    provider: str, message: str, at: int | None, stand_in: ProviderStandIn, rig: MakeRig
) -> None:
    stand_in.script(Reply.error(400, f"{message} {TEST_KEY} the text"))
    with pytest.raises(Refused) as caught:
        await rig(provider).api.embed(["the text"])
    assert (caught.value.status, caught.value.at) == (400, at)
    shown = "".join(traceback.format_exception(caught.value))
    assert TEST_KEY not in shown
    assert "too long" not in shown


def refusal(**error: JsonValue) -> Reply:
    return Reply(400, {"error": {"type": "invalid_request_error", **error}})


MATRYOSHKA = 'Model "bge-m3" does not support matryoshka representation, changing output dimensions is poor.'


@pytest.mark.parametrize(
    "reply",
    [
        refusal(message="Out of range.", param="dimensions", code=None),
        refusal(message="No.", param=None, code="unsupported_dimensions"),
        refusal(message="This model does not support specifying dimensions.", param=None, code=None),
        refusal(message=f"litellm.BadRequestError: Error code: 400 - {{'message': '{MATRYOSHKA}'}}"),
        Reply(400, {"object": "error", "message": MATRYOSHKA, "param": None, "code": 400}),
        Reply(400, {"object": "error", "message": "dimensions is currently not supported", "code": 400}),
        Reply(400, {"error": "Unrecognized request argument supplied: dimensions"}),
        Reply(422, {"detail": [{"type": "extra_forbidden", "loc": ["body", "dimensions"], "msg": "Not permitted"}]}),
    ],
)
async def test_a_server_that_makes_one_width_only_is_not_asked_for_it_again(
    reply: Reply, stand_in: ProviderStandIn, rig: MakeRig
) -> None:
    stand_in.rule = lambda request: reply if "dimensions" in request.json else None
    made = rig("openai")
    await made.embedder.embed("one")
    await made.embedder.embed("two")
    assert ["dimensions" in request.json for request in stand_in.requests] == [True, False, False]


SAYING = "This model does not support specifying dimensions."


@pytest.mark.parametrize(
    ("text", "reply"),
    [
        ("the dimensions of the box", refusal(message="not allowed: ['the dimensions of the box']")),
        ("a matryoshka doll", refusal(message="not allowed: a matryoshka doll", param=None)),
        (SAYING, refusal(message=f"not allowed: {SAYING}")),
        (SAYING, refusal(message=SAYING, param="input", code="content_filter")),
        (SAYING, Reply(422, {"detail": [{"loc": ["body", "input"], "msg": SAYING, "input": "dimensions"}]})),
        ("dimensions of a box", refusal(message="unexpected word in: 'dimensions of a box'")),
    ],
)
async def test_a_refusal_that_quotes_a_text_about_dimensions_changes_no_width(
    text: str, reply: Reply, stand_in: ProviderStandIn, rig: MakeRig
) -> None:
    made = rig("openai")
    # Refused once: the same text would be taken the next time, with or without a width.
    stand_in.script(reply)
    with pytest.raises(ProviderFailed):
        await made.embedder.embed(text)
    await made.embedder.embed("one")
    assert ["dimensions" in request.json for request in stand_in.requests] == [True, True]


@BOTH
async def test_one_hung_request_holds_up_no_other(provider: str, stand_in: ProviderStandIn, rig: MakeRig) -> None:
    stand_in.script(Reply(fault=Fault.HANG))
    embedder = rig(provider).embedder
    hung = asyncio.create_task(embedder.embed("stuck"))
    await asyncio.wait_for(stand_in.arrived.wait(), 5)
    await asyncio.wait_for(asyncio.gather(*(embedder.embed(f"n{n}") for n in range(10))), 10)
    hung.cancel()
    with pytest.raises(asyncio.CancelledError):
        await hung
