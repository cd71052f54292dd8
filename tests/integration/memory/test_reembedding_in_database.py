"""The database asks a provider for vectors itself, through its own function."""

import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import aclosing
from typing import Any

import pytest
from support.memory import CONCEPTS, NAMELESS, MemoryHarness, gate_of, memory_over

from loom_common.call import Scope
from loom_common.clickhouse import ClickHouse
from loom_common.errors import InvalidArgument
from loom_common.model_calls.switch import FakeSwitch
from loom_memory.app.embedding import ServedModel
from loom_memory.app.embedding_fake import FakeEmbedding
from loom_memory.app.reembedding import Progress, ReembedOptions
from loom_memory.app.search import SearchMode
from loom_memory.domain.keys import FIRST_KEY_CHUNK
from loom_memory.settings import MemorySettings
from loom_memory.store.in_database import MOST_CHARS

MODEL, DIM = "text-embedding-3-small", 32
VIOLET = "violet"


class Provider:
    """Speaks the format of OpenAI's embeddings and answers with the vectors of the fake; refuses one word."""

    def __init__(self) -> None:
        self.embedder = FakeEmbedding(CONCEPTS, dim=DIM)
        self.requests: list[dict[str, Any]] = []
        provider = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                provider.requests.append(body)
                refused = any(VIOLET in text for text in body["input"])
                vectors = [] if refused else [provider.embedder._vector(text) for text in body["input"]]
                data = [{"object": "embedding", "index": i, "embedding": v} for i, v in enumerate(vectors)]
                answer = json.dumps({"object": "list", "data": data, "model": MODEL}).encode()
                self.send_response(400 if refused else 200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1/embeddings"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class Remote(FakeEmbedding):
    """Says that its model is a provider's."""

    async def served_model(self) -> ServedModel:
        return ServedModel(MODEL, DIM, fake=False, noise_floor=0.2)


@pytest.fixture
def provider() -> Iterator[Provider]:
    found = Provider()
    yield found
    found.close()


async def run(memory: MemoryHarness, *, key_only: bool = False) -> Progress:
    options = ReembedOptions(collection="loom_test_provider", key_only=key_only)
    async with aclosing(memory.parts.reembedding.run(options)) as progresses:
        async for progress in progresses:
            last = progress
    assert last.finished
    return last


async def test_one_statement_gives_vectors_to_all_that_it_may(clickhouse: ClickHouse, provider: Provider) -> None:
    before = await memory_over(clickhouse, FakeEmbedding(CONCEPTS))
    await before.set("k1", "not sent", scope=Scope("off", "team"))
    await before.fill({"k1": "Ana bought a car", "k2": "Ben drinks coffee", "long": "x " * MOST_CHARS})
    switched = gate_of(NAMELESS, FakeSwitch("off"))
    memory = await memory_over(clickhouse, Remote(CONCEPTS, dim=DIM), model_calls=switched)
    await clickhouse.command(
        "CREATE NAMED COLLECTION loom_test_provider AS provider = 'openai', api_key = 'k', endpoint = {url:String}"
        .replace("{url:String}", f"'{provider.url}'")
    )  # fmt: skip
    try:
        done = await run(memory)
        assert (done.total, done.done, done.skipped, done.failed) == (3, 2, 1, 0)
        assert [(body["model"], body["dimensions"], sorted(body["input"])) for body in provider.requests] == [
            (MODEL, DIM, ["Ana bought a car", "Ben drinks coffee", "long"])
        ]
        assert (await memory.found("Ana automobile purchased", mode=SearchMode.VECTOR))[:1] == ["k1"]
        rows = await clickhouse.query(
            "SELECT memory_key, chunk, start_offset, end_offset, embedding_dim, round(L2Norm(embedding), 3) "
            "FROM memory_embeddings WHERE embedding_model = {m:String} ORDER BY memory_key",
            {"m": MODEL},
        )
        assert rows.rows == [
            ("k1", 0, 0, 16, DIM, 1.0),
            ("k2", 0, 0, 17, DIM, 1.0),
            ("long", FIRST_KEY_CHUNK, 0, 0, DIM, 1.0),
        ]
        assert (await memory.search("long", mode=SearchMode.VECTOR)).pending == 1
        assert (await run(memory, key_only=True)).total == 0
        named = MemorySettings(LOOM_INFERENCE_CUSTOMER_HEADER="x-org")
        with pytest.raises(InvalidArgument, match="LOOM_INFERENCE_CUSTOMER_HEADER"):
            await run(await memory_over(clickhouse, Remote(CONCEPTS, dim=DIM), settings=named))
        await before.set("k3", f"a {VIOLET} door")
        assert (await run(memory)).skipped == 2
    finally:
        await clickhouse.command("DROP NAMED COLLECTION loom_test_provider")
