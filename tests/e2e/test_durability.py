"""`kill -9` at any moment loses no acknowledged write, and the next start needs no repair by hand."""

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from support.up import UpProcess, end, eventually, launch, loom_up, run_loom, wait_until_up

from loom_client import Loom, LoomError

KILLS = 20
WRITERS = 4
SUBJECTS = ("Ana", "Bo", "Chi", "Dov", "Eve", "Fay", "Gus", "Hal")
DRINKS = ("green tea", "black coffee", "apple juice", "warm milk", "ginger beer", "cold water")
MOODS = ("happy", "calm", "tired", "busy")


@dataclass
class Acknowledged:
    """What writers were told is stored, kept outside of Loom: every version of each key."""

    versions: dict[str, dict[int, str]] = field(default_factory=dict)
    fresh: set[str] = field(default_factory=set)
    """Keys written in the life that ended last."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, key: str, version: int, value: str) -> None:
        with self.lock:
            self.versions.setdefault(key, {})[version] = value
            self.fresh.add(key)


def value_of(writer: int, number: int, word: str) -> str:
    subject, drink = SUBJECTS[number % len(SUBJECTS)], DRINKS[(writer + number) % len(DRINKS)]
    return f"{subject} enjoys {drink} while feeling {MOODS[number % len(MOODS)]}, ticket {word}"


def write(up: UpProcess, writer: int, start: int, told: Acknowledged) -> None:
    """Writes until Loom is gone; each key is its writer's own, and every third write is a new version of an old key."""
    number = start
    with Loom(up.http_url, up.token, max_attempts=1, timeout_s=20) as loom:
        while True:
            number += 1
            key = f"w{writer}-{number - 1 if number % 3 == 0 else number}"
            value = value_of(writer, number, f"kx{writer}q{number}z")
            try:
                done = loom.memory.set(value, key=key, user_id=f"writer-{writer}")
            except LoomError:
                return
            told.note(f"writer-{writer}/{key}", done.version, value)


def check(up: UpProcess, expected: dict[str, dict[int, str]]) -> None:
    """Finds every acknowledged revision by get and history, and each key by a word alone and by a paraphrase alone."""
    with Loom(up.http_url, up.token, timeout_s=60) as loom, ThreadPoolExecutor(WRITERS) as pool:
        for done in [pool.submit(check_one, loom, place, versions) for place, versions in expected.items()]:
            done.result()


def check_one(loom: Loom, place: str, versions: dict[int, str]) -> None:
    user, key = place.split("/")
    held = loom.memory.get(key, user_id=user).memory
    assert held is not None, place
    # A write that was in flight when the kill came may be there too, and then is newer.
    last = max(versions)
    assert held.version >= last, place
    kept = {old.version: old.value for old in loom.memory.history(key, user_id=user, page_size=500).versions}
    assert kept | versions == kept, place
    assert held.value == kept[held.version]
    word = held.value.rsplit(" ", 1)[-1]
    by_word = loom.memory.search(word, user_id=user, search_mode="lexical").hits
    assert [hit.memory.key for hit in by_word if hit.memory][:1] == [key], (place, word)
    paraphrase = held.value.rsplit(", ticket", 1)[0].replace("enjoys", "likes to drink")
    by_meaning = loom.memory.search(paraphrase, user_id=user, search_mode="vector", top_k=100).hits
    assert key in {hit.memory.key for hit in by_meaning if hit.memory}, (place, paraphrase)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_no_acknowledged_revision_is_lost_over_twenty_kills_under_four_writers(tmp_path: Path) -> None:
    data, told, chance = tmp_path / "data", Acknowledged(), random.Random(4417)
    for kill in range(KILLS):
        up = wait_until_up(launch(data), data)
        try:
            check_last_life(up, told, chance)
            writers = [
                threading.Thread(target=write, args=(up, writer, 1000 * kill, told)) for writer in range(WRITERS)
            ]
            for writer in writers:
                writer.start()
            # Some lives end before they acknowledge anything, others amid much; always at a moment of chance.
            enough = chance.randint(0, 10)
            eventually(lambda: len(told.fresh) >= enough, 60, f"{enough} keys written")  # noqa: B023 - called at once
            time.sleep(chance.uniform(0, 0.1))  # the moment of the kill is the test's subject
        finally:
            end(up.process)
        for writer in writers:
            writer.join(30)
            assert not writer.is_alive()
    stopped = run_loom("status", "--data-dir", data)
    assert stopped.returncode == 1
    assert "stopped" in stopped.stdout
    with loom_up(data) as up:
        check_last_life(up, told, chance)
        check_all_present(up, told)
    assert sum(len(versions) for versions in told.versions.values()) > WRITERS * KILLS


def check_last_life(up: UpProcess, told: Acknowledged, chance: random.Random) -> None:
    """Checks all that the last life acknowledged, and a few of older lives, so that the test grows with its length."""
    older = sorted(set(told.versions) - told.fresh)
    places = [*told.fresh, *chance.sample(older, min(2, len(older)))]
    check(up, {place: told.versions[place] for place in places})
    told.fresh.clear()


def check_all_present(up: UpProcess, told: Acknowledged) -> None:
    """Lists every key at the end; none that was acknowledged is missing."""
    found: dict[str, int] = {}
    page = ""
    with Loom(up.http_url, up.token, timeout_s=60) as loom:
        while True:
            answer = loom.memory.list(page_size=500, page_token=page or None)
            found.update({f"{memory.user_id}/{memory.key}": memory.version for memory in answer.memories})
            page = answer.next_page_token
            if not page:
                break
    missing = {place for place, versions in told.versions.items() if found.get(place, 0) < max(versions)}
    assert not missing
