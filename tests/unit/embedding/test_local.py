"""The default model: the vectors that it must give, alone, in a batch and padded; no network at any time."""

import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from loom_common.call import Call, bind
from loom_embedding.domain.models import LOCAL_MODELS, MINILM
from loom_embedding.providers.batches import BatchQueue
from loom_embedding.providers.local import LocalEmbedder, LocalTokens, OnnxModel

# Source: this model through fastembed 0.9.1 and onnxruntime 1.32 on x86-64, 2026-11-30; tolerance 0.005, since another
# processor rounds the 8-bit weights' products otherwise.
GOLDEN = {
    "hello world": [-0.03482, 0.03014, 0.0130, 0.02538, -0.03745],
    "The user prefers dark mode.": [0.04295, -0.00942, 0.01001, 0.05443, -0.02417],
    "東京都に住んでいます": [0.08421, 0.09685, 0.07147, -0.02537, -0.08076],
}
TOLERANCE = 0.005

TEXTS = [
    "hello world",
    "The user prefers dark mode.",
    "",
    " ",
    "東京都に住んでいます",
    "a much longer text that makes the others in its batch be padded " * 12,
    "ZX-4417-Q",
    "👩‍👩‍👧‍👦",
]


@pytest.mark.parametrize("text", GOLDEN)
def test_the_first_values_of_known_texts_are_the_golden_ones(minilm: OnnxModel, text: str) -> None:
    assert minilm.embed_batch([text])[0][:5] == pytest.approx(GOLDEN[text], abs=TOLERANCE)


def test_alone_in_a_batch_and_padded_a_text_has_the_same_vector(minilm: OnnxModel) -> None:
    single = np.concatenate([minilm.embed_batch([text]) for text in TEXTS])
    batched = minilm.embed_batch(TEXTS)
    # The weights are 8-bit but the arithmetic is not, so only the order of float additions may differ.
    assert np.abs(single - batched).max() < 1e-5
    reversed_batch = minilm.embed_batch(TEXTS[::-1])[::-1]
    assert np.abs(single - reversed_batch).max() < 1e-5


def test_vectors_are_float32_of_the_models_width_and_unit_length(minilm: OnnxModel) -> None:
    vectors = minilm.embed_batch(TEXTS)
    assert vectors.shape == (len(TEXTS), LOCAL_MODELS[MINILM].dim)
    assert vectors.dtype == np.float32
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(np.ones(len(TEXTS)), abs=1e-5)


def test_unrelated_texts_lie_under_the_noise_floor_and_paraphrases_well_above(minilm: OnnxModel) -> None:
    facts = [
        "The user prefers dark mode.",
        "Paris is the capital of France.",
        "The invoice of March was paid late.",
        "Our cat sleeps on the warm radiator.",
        "Kubernetes restarts the pod after a crash.",
    ]
    vectors = minilm.embed_batch(facts)
    cosines = (vectors @ vectors.T)[np.triu_indices(len(facts), k=1)]
    floor = LOCAL_MODELS[MINILM].noise_floor
    assert cosines.max() < floor
    one, other = minilm.embed_batch(["The invoice of March was paid late.", "They settled the March bill too late."])
    assert one @ other > 2 * floor


def test_long_words_differ_from_each_other_instead_of_being_one_unknown_word(minilm: OnnxModel) -> None:
    one, other = minilm.embed_batch(["deadbeef" * 30, "สวัสดีครับยินดี" * 20])
    assert one @ other < 0.9


async def test_the_embedder_counts_tokens_and_orders_its_answers(minilm: OnnxModel, minilm_tokens: LocalTokens) -> None:
    queue = BatchQueue(minilm.embed_batch, max_waiting=100)
    embedder = LocalEmbedder(LOCAL_MODELS[MINILM], minilm_tokens, queue)
    with bind(Call()) as call:
        many = await embedder.embed_many(TEXTS)
        one = await embedder.embed(TEXTS[1])
    assert np.abs(np.stack(many) - minilm.embed_batch(TEXTS)).max() < 1e-5
    assert np.abs(many[1] - one).max() < 1e-5
    assert call.usage.embedding_tokens == sum(minilm_tokens.counts([*TEXTS, TEXTS[1]]))
    assert call.usage.model == MINILM
    await queue.aclose()


def test_the_model_loads_and_embeds_where_every_socket_is_refused(minilm_folder: Path) -> None:
    script = """
        import socket, sys
        from pathlib import Path

        def refuse(*arguments, **more):
            raise AssertionError("a socket was opened")

        socket.socket.connect = socket.socket.connect_ex = socket.getaddrinfo = socket.create_connection = refuse
        from loom_embedding.domain.models import LOCAL_MODELS, MINILM
        from loom_embedding.providers.local import OnnxModel
        print(OnnxModel(LOCAL_MODELS[MINILM], Path(sys.argv[1])).embed_batch(["hello world"]).shape)
    """
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(script), str(minilm_folder)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout.strip()) == (0, "(1, 384)"), done.stderr
