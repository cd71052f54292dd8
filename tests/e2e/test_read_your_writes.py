"""A write is found by a search begun right after its acknowledgement: over the public API, with the real embedder."""

import itertools
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from support.up import UpProcess, run_loom

from loom_client import Loom

ROWS = 4_000
PER_CALL = 500
NAMESPACE = "read-your-writes"
# Each fact with a paraphrase in other words, which the default model holds for near: cosines of 0.47 to 0.57.
FACTS = (
    ("Zoltan bought a second-hand car", "acquiring a used automobile"),
    ("The physician moved to Lyon", "a doctor relocating to a French city"),
    ("Ines is allergic to peanuts", "who has a nut allergy?"),
    ("Rent is due on the first of each month", "payment date of the monthly lease"),
    ("The dog sleeps in the kitchen", "a puppy naps beside the stove"),
)
ADJECTIVES = ("red", "small", "heavy", "wet", "loud", "cheap", "round", "sharp", "dusty", "plain")
NOUNS = ("brick", "ladder", "bucket", "helmet", "gasket", "pulley", "washer", "hinge", "bolt", "crate")


@pytest.fixture(scope="module")
def token(up: UpProcess) -> str:
    """A token for a namespace of these tests' own."""

    def made(*options: str) -> str:
        done = run_loom("token", "create", *options, "--json", "--data-dir", up.data_dir)
        assert done.returncode == 0, done.stderr
        return str(json.loads(done.stdout)["token"])

    up.call("namespace.create", {"name": NAMESPACE}, token=made("--org-admin", "--role", "admin"))
    return made("--namespace", NAMESPACE)


@pytest.fixture
def busy(up: UpProcess, token: str) -> Iterator[None]:
    """Four thousand rows, and a writer that never rests."""

    def load(first: int) -> None:
        items = [
            {"key": f"n{number}", "value": f"{ADJECTIVES[number % 10]} {NOUNS[number // 10 % 10]} {number}"}
            for number in range(first, first + PER_CALL)
        ]
        answer = httpx.post(
            f"{up.http_url}/v1/memory.set_many",
            json={"items": items, "verbatim": True},
            headers={"Authorization": f"Bearer {token}"},
            timeout=120,
            trust_env=False,
        )
        assert answer.json()["ok_count"] == PER_CALL, answer.text[:500]

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(load, range(0, ROWS, PER_CALL)))
    stop, failures = threading.Event(), list[BaseException]()

    def write() -> None:
        try:
            with Loom(up.http_url, token, timeout_s=60) as loom:
                for number in itertools.count():
                    if stop.is_set():
                        return
                    loom.memory.set(f"running note {number}", key=f"w{number % 50}")
        except BaseException as error:
            failures.append(error)
            raise

    writer = threading.Thread(target=write)
    writer.start()
    yield
    stop.set()
    writer.join(60)
    assert not writer.is_alive()
    assert not failures


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.usefixtures("busy")
def test_new_updated_and_deleted_memories_are_found_or_not_by_a_word_and_by_a_paraphrase_at_once(
    up: UpProcess, token: str
) -> None:
    with Loom(up.http_url, token, timeout_s=60) as writing, Loom(up.http_url, token, timeout_s=60) as reading:

        def by_word(word: str) -> list[str]:
            return values(word, "lexical")

        def by_meaning(paraphrase: str) -> list[str]:
            return values(paraphrase, "vector")

        def values(query: str, mode: str) -> list[str]:
            hits = reading.memory.search(query, search_mode=mode, top_k=50).hits
            return [hit.memory.value for hit in hits if hit.memory and not hit.low]

        for number in range(18):
            key = f"fact{number}"
            (old, old_paraphrase), (new, new_paraphrase) = FACTS[number % 5], FACTS[(number + 1) % 5]
            old_word, new_word = f"qz{number}token", f"ry{number}token"
            old, new = f"{old}, {old_word}", f"{new}, {new_word}"
            writing.memory.set(old, key=key)
            assert by_word(old_word) == [old]
            assert old in by_meaning(old_paraphrase)
            writing.memory.set(new, key=key)
            assert old not in by_meaning(old_paraphrase)
            assert new in by_meaning(new_paraphrase)
            assert by_word(old_word) == []
            assert by_word(new_word) == [new]
            if number % 2:
                assert writing.memory.delete(key).deleted
                assert new not in by_meaning(new_paraphrase)
                assert by_word(new_word) == []
                assert not reading.memory.get(key).found
