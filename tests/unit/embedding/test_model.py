"""Opening the served model: what stands in, what is refused, which views there are, what health says."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from structlog.testing import capture_logs
from support.providers import TEST_KEY, ProviderStandIn, Reply, embedding_of

from loom_common.call import Call, bind
from loom_common.ledger import FakeLedgerSink
from loom_common.providers import FailureKind, ProviderError
from loom_common.settings import SettingsError
from loom_embedding.app.width import probe_width
from loom_embedding.domain.embedder import Outcome, Vector
from loom_embedding.domain.vectors import MalformedEmbedding, unit_vector
from loom_embedding.model import OpenModel, open_model
from loom_embedding.providers.alias import AliasEmbedder
from loom_embedding.providers.fake import FakeEmbedder, trigram_vector
from loom_embedding.providers.prefix import PrefixEmbedder
from loom_embedding.settings import EmbeddingSettings
from loom_embedding.wiring import build_status


def settings(**environ: str) -> EmbeddingSettings:
    return EmbeddingSettings.load(environ=environ)


async def problems(model: OpenModel, given: EmbeddingSettings) -> dict[str, str]:
    report = await build_status(model, given).report()
    assert report.ready
    return {problem.code: problem.severity for problem in report.problems}


@pytest.mark.parametrize(
    ("model", "variables"),
    [("text-embedding-3-small", "OPENAI_API_KEY"), ("gemini-embedding-001", "GEMINI_API_KEY or GOOGLE_API_KEY")],
)
@pytest.mark.parametrize(("require", "severity"), [("false", "warning"), ("true", "error")])
async def test_the_fake_stands_in_for_a_missing_key_loudly(
    model: str, variables: str, require: str, severity: str
) -> None:
    given = settings(LOOM_EMBEDDING_MODEL=model, LOOM_REQUIRE_REAL_PROVIDERS=require)
    with capture_logs() as logs:
        async with open_model(given) as opened:
            assert opened.served.fake
            assert await problems(opened, given) == {"fake_embedder": severity, "embedder_key_missing": severity}
    [line] = [line for line in logs if line["event"] == "fake_embedder"]
    assert (line["log_level"], line["reason"], line["wanted"], line["set"]) == (
        "error",
        "key_missing",
        model,
        variables,
    )


async def test_a_fake_that_was_asked_for_is_loud_as_well_and_misses_no_key() -> None:
    given = settings(LOOM_EMBEDDING_MODEL="fake-ngram-64", LOOM_EMBEDDING_DIM="128")
    with capture_logs() as logs:
        async with open_model(given) as opened:
            assert set(await problems(opened, given)) == {"fake_embedder", "embedding_dim_mismatch"}
    assert [line["reason"] for line in logs if line["event"] == "fake_embedder"] == ["asked_for"]


@pytest.mark.parametrize("key", ["GEMINI_API_KEY", "GOOGLE_API_KEY"])
async def test_either_key_of_gemini_will_do(key: str, stand_in: ProviderStandIn) -> None:
    given = settings(
        LOOM_EMBEDDING_PROVIDER="gemini",
        LOOM_EMBEDDING_DIM="16",
        LOOM_GEMINI_BASE_URL=stand_in.gemini_url,
        **{key: TEST_KEY},
    )
    async with open_model(given) as opened:
        assert np.allclose(await opened.embedder.embed("one"), unit_vector(embedding_of("one", 16), 16), atol=1e-6)
        assert (opened.served.window_tokens, opened.served.provider) == (2048, "gemini")
    assert stand_in.requests[0].headers["x-goog-api-key"] == TEST_KEY
    assert TEST_KEY not in repr(given)


@pytest.mark.parametrize("key", ["OPENAI_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY"])
@pytest.mark.parametrize("sign", ["\u00e9", "\u200b", " ", "\n", "\x7f"])
def test_a_key_that_no_header_can_carry_stops_the_start_and_is_not_shown(key: str, sign: str) -> None:
    with pytest.raises(SettingsError) as caught:
        settings(**{key: f"sk-{sign}secret"})
    assert key in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("variable", ["LOOM_OPENAI_BASE_URL", "LOOM_GEMINI_BASE_URL"])
@pytest.mark.parametrize("url", ["http://", "http://h:abc", "http://[::1", "http://h:123456", "http://a:b:c/", "h/v1"])
def test_an_address_that_no_client_takes_stops_the_start(variable: str, url: str) -> None:
    with pytest.raises(SettingsError, match=variable):
        settings(**{variable: url})


@pytest.mark.parametrize(
    "url", ["http://h", "https://h:8080/v1", "http://[::1]:1/v1", "http://u:p@h/v1?x=1", "http://h/"]
)
def test_an_address_of_a_compatible_server_is_taken(url: str) -> None:
    assert settings(LOOM_OPENAI_BASE_URL=url).openai_base_url == url


async def test_a_compatible_server_needs_no_key_and_serves_any_name(stand_in: ProviderStandIn) -> None:
    given = settings(
        LOOM_EMBEDDING_PROVIDER="openai",
        LOOM_EMBEDDING_MODEL="nomic-embed-text",
        LOOM_EMBEDDING_DIM="16",
        LOOM_EMBEDDING_WINDOW_TOKENS="512",
        LOOM_OPENAI_BASE_URL=stand_in.openai_url,
    )
    async with open_model(given) as opened:
        with bind(Call()) as call, capture_logs() as logs:
            assert len(await opened.embedder.embed("one")) == 16
            await opened.embedder.embed("two")
        assert await problems(opened, given) == {}
        assert (opened.served.name, opened.served.budget_tokens) == ("nomic-embed-text", 512)
    assert stand_in.requests[0].headers["authorization"] == "Bearer none"
    assert (call.usage.embedding_tokens, call.usage.upstream_cost_usd) == (6, 0.0)
    assert [line["event"] for line in logs].count("model_unpriced") == 1


async def test_only_a_remote_models_calls_outlive_their_callers(stand_in: ProviderStandIn) -> None:
    remote = settings(
        LOOM_EMBEDDING_PROVIDER="openai", OPENAI_API_KEY=TEST_KEY, LOOM_OPENAI_BASE_URL=stand_in.openai_url
    )
    async with open_model(remote, ledger=FakeLedgerSink()) as opened:
        assert opened.orphans is not None
    async with open_model(settings(LOOM_EMBEDDING_MODEL="fake-ngram-64"), ledger=FakeLedgerSink()) as opened:
        assert opened.orphans is None


async def test_a_width_other_than_the_one_asked_for_is_an_error_on_health(stand_in: ProviderStandIn) -> None:
    given = settings(
        LOOM_EMBEDDING_MODEL="text-embedding-3-small",
        LOOM_EMBEDDING_DIM="16",
        OPENAI_API_KEY=TEST_KEY,
        LOOM_OPENAI_BASE_URL=stand_in.openai_url,
    )
    stand_in.rule = lambda request: (
        Reply.error(400, "unknown parameter: dimensions") if "dimensions" in request.json else None
    )
    async with open_model(given) as opened:
        assert await problems(opened, given) == {}
        await probe_width(opened.embedder)  # logged, and no more than that
        assert await problems(opened, given) == {
            "embedding_dim_mismatch": "error",
            "provider_failing:openai": "warning",
        }


async def test_a_failed_probe_leaves_the_service_ready_and_names_the_provider(stand_in: ProviderStandIn) -> None:
    given = settings(
        OPENAI_API_KEY=TEST_KEY, LOOM_EMBEDDING_PROVIDER="openai", LOOM_OPENAI_BASE_URL=stand_in.openai_url
    )
    stand_in.script(Reply.error(401))
    async with open_model(given) as opened:
        await probe_width(opened.embedder)
        assert await problems(opened, given) == {"provider_failing:openai": "warning"}


async def test_a_probe_that_breaks_in_a_providers_library_is_logged_and_hinders_nothing() -> None:
    class Broken(FakeEmbedder):
        async def embed_many(self, texts: Sequence[str]) -> list[Vector]:
            raise RuntimeError("a defect of a library")

    with capture_logs() as logs:
        await probe_width(Broken("fake-ngram-64", 64))
    assert [line["event"] for line in logs] == ["embedder_probe_failed"]


async def test_a_local_models_own_width_is_kept_and_another_that_is_expected_shows() -> None:
    given = settings(LOOM_EMBEDDING_MODEL="fake-ngram-64")
    async with open_model(given) as opened:
        local = OpenModel(opened.selection, opened.embedder, opened.tokens, opened.served)
        report = await build_status(local, settings(LOOM_EMBEDDING_DIM="3072")).report()
    assert "embedding_dim_mismatch" in {problem.code for problem in report.problems}


async def test_health_names_the_provider_whose_last_call_failed() -> None:
    given = settings(LOOM_EMBEDDING_MODEL="fake-ngram-64")
    async with open_model(given) as opened:
        opened.health.failed(ProviderError("openai", FailureKind.STATUS, status=503))
        assert "provider_failing:openai" in await problems(opened, given)
        opened.health.answered()
        assert "provider_failing:openai" not in await problems(opened, given)


async def test_views_are_opened_only_where_they_are_listed() -> None:
    async with open_model(settings(LOOM_EMBEDDING_MODEL="fake-ngram-64")) as opened:
        assert opened.views == {}
    labels = "prefix:16:fake-ngram-64, ctx[names]:fake-ngram-64"
    given = settings(LOOM_EMBEDDING_MODEL="fake-ngram-64", LOOM_CODE_SEARCH_VECTOR_MODELS=labels)
    async with open_model(given) as opened:
        assert {label: view.dim for label, view in opened.views.items()} == {
            "prefix:16:fake-ngram-64": 16,
            "ctx[names]:fake-ngram-64": 64,
        }


@pytest.mark.parametrize(
    ("environ", "word"),
    [
        ({"LOOM_CODE_SEARCH_VECTOR_MODELS": "prefix:16:other"}, "prefix:16:other"),
        ({"LOOM_CODE_SEARCH_VECTOR_MODELS": "gemini-embedding-001"}, "is no view"),
        ({"LOOM_EMBEDDING_MODEL": "prefix:16:local:minilm"}, "view"),
        (
            {
                "LOOM_EMBEDDING_MODEL": "text-embedding-3-small",
                "LOOM_CODE_SEARCH_VECTOR_MODELS": "prefix:256:text-embedding-3-small",
            },
            "OPENAI_API_KEY is not set",
        ),
    ],
)
async def test_what_cannot_be_opened_stops_the_start_in_one_line(environ: dict[str, str], word: str) -> None:
    with pytest.raises(SettingsError) as caught:
        async with open_model(settings(**{"LOOM_EMBEDDING_MODEL": "fake-ngram-64", **environ})):
            pass
    assert word in str(caught.value)
    assert "\n" not in str(caught.value)


class Partly(FakeEmbedder):
    """The fake, which has no vector for some texts and one without a beginning for others."""

    async def embed_each(self, texts: Sequence[str]) -> list[Outcome]:
        special: dict[str, Outcome] = {
            "refused": MalformedEmbedding("scripted"),
            "late": unit_vector([0.0] * 63 + [1.0], 64),
        }
        return [special.get(text, trigram_vector(text, 64)) for text in texts]


def begun(vector: Vector) -> Any:
    return pytest.approx(unit_vector(vector[:16], 16), abs=1e-6)


async def test_a_prefix_is_the_beginning_of_each_vector_at_unit_length() -> None:
    view = PrefixEmbedder("prefix:16:fake-ngram-64", Partly("fake-ngram-64", 64), 16)
    one = trigram_vector("dark mode", 64)
    assert await view.embed("dark mode") == begun(one)
    assert await view.embed_many(["dark mode"]) == [begun(one)]
    good, refused, late = await view.embed_each(["dark mode", "refused", "late"])
    assert good == begun(one)
    assert isinstance(refused, MalformedEmbedding)
    assert isinstance(late, MalformedEmbedding)
    assert (view.model_name, view.dim) == ("prefix:16:fake-ngram-64", 16)


async def test_an_alias_gives_the_served_vectors_another_name() -> None:
    view = AliasEmbedder("ctx[names]:fake-ngram-64", FakeEmbedder("fake-ngram-64", 64))
    one = trigram_vector("dark mode", 64)
    assert np.array_equal(await view.embed("dark mode"), one)
    assert np.array_equal((await view.embed_many(["dark mode"]))[0], one)
    assert np.array_equal(np.asarray((await view.embed_each(["dark mode"]))[0]), one)
    assert (view.model_name, view.dim) == ("ctx[names]:fake-ngram-64", 64)
