"""What a shard answers is what the rows say, whatever was written, replaced, deleted and merged before."""

import random
from dataclasses import replace
from datetime import datetime, timedelta

import numpy as np
import pytest
from support.tier import NOW, SPACE, deleted, memory, unit

from loom_memory.domain.analyzer import analyze_query, analyze_text
from loom_memory.domain.memory import Filter, Identity, Memory
from loom_memory.domain.names import NamedExactly
from loom_memory.domain.narrowing import Narrowing, Span
from loom_memory.domain.ranking import WINDOW
from loom_memory.domain.scoring import LexicalStatistics, lexical_match
from loom_memory.store.columns import row_from_memory
from loom_memory.tier import reading
from loom_memory.tier.selecting import is_known
from loom_memory.tier.shard import Shard

WORDS = (
    *("coffee", "tea", "train", "station", "main.py", "ZX-4417-Q", "doctor", "house", "garden", "rain", "snow"),
    *("music", "piano", "book", "river", "mountain", "bread", "cheese", "wine", "lamp"),
)
FILTERS = (
    Filter(),
    Filter(user_id="u1"),
    Filter(user_id=""),
    Filter(session_id="s1"),
    Filter(user_id="u2", session_id="s2", kinds=("fact",)),
    Filter(kinds=("fact", "event")),
    Filter(tags=("red", "blue")),
    Filter(agent="a1"),
    Filter(user_id="nobody"),
    Filter(more=Narrowing(speakers=("Ann", "Cyd"))),
    Filter(user_id="u1", more=Narrowing(happened=Span(NOW - timedelta(minutes=5), NOW))),
    Filter(more=Narrowing(updated=Span(NOW + timedelta(milliseconds=300)))),
)


class Model:
    """Rows as a database would hold them, and a shard that was told of the same writes."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.shard = Shard(SPACE)
        self.rows: dict[Identity, Memory] = {}
        self.vectors: dict[Identity, list[list[float]]] = {}
        self.version = 0

    def write(self, count: int) -> None:
        for _ in range(count):
            identity = Identity(f"k{self.random.randrange(60)}", self.pick("", "u1", "u2"), self.pick("", "s1", "s2"))
            self.version += self.random.randint(1, 5)
            held = self.rows.get(identity)
            if held is not None and held.tombstoned_at is None and self.random.random() < 0.3:
                self.put(deleted(held, self.version), [])
            else:
                vectors = [unit(self.version * 7 + n) for n in range(self.random.randint(0, 3))]
                self.put(self.some_memory(identity), vectors)

    def put(self, row: Memory, vectors: list[list[float]]) -> None:
        late = self.random.random() < 0.3
        if not late:
            self.put_vectors(row, vectors)
        text = analyze_text(row.content.value)
        self.shard.put(row_from_memory(row), np.array(text.term_ids, np.uint32), text.dl)
        if late:
            self.put_vectors(row, vectors)
        self.rows[row.identity], self.vectors[row.identity] = row, vectors

    def put_vectors(self, row: Memory, vectors: list[list[float]]) -> None:
        for chunk, vector in enumerate([*vectors, *vectors[:1]]):  # the first comes twice
            self.shard.put_vector(row.identity, row.version, chunk % max(len(vectors), 1), np.array(vector, np.float32))

    def some_memory(self, identity: Identity) -> Memory:
        value = " ".join(self.random.choices(WORDS, k=self.random.randint(1, 9)))
        expires_at = self.random.choice([None, None, NOW - timedelta(hours=1), NOW + timedelta(hours=1)])
        event_time = self.random.choice([None, NOW - timedelta(minutes=self.random.randint(0, 9))])
        return memory(
            identity.key, self.version, value, user_id=identity.user_id, session_id=identity.session_id,
            kind=self.pick("note", "fact", "event"), tags=tuple(self.random.sample(["red", "blue", "green"], k=1)),
            agent=self.pick("", "a1"), speaker=self.pick("", "Ann", "Bob"), event_time=event_time,
            expires_at=expires_at,
        )  # fmt: skip

    def pick(self, *values: str) -> str:
        return self.random.choice(values)

    def shown(self, wanted: Filter, now: datetime) -> list[Memory]:
        return [row for row in self.rows.values() if row.is_visible(now) and passes(row, wanted)]


def passes(row: Memory, wanted: Filter) -> bool:
    content, identity = row.content, row.identity
    return (
        wanted.user_id in (None, identity.user_id)
        and wanted.session_id in (None, identity.session_id)
        and (not wanted.kinds or content.kind in wanted.kinds)
        and (not wanted.tags or not set(wanted.tags).isdisjoint(content.tags))
        and wanted.agent in ("", content.agent)
        and (not wanted.more.speakers or content.speaker in wanted.more.speakers)
        and wanted.more.happened.holds(content.event_time or row.created_at)
        and wanted.more.updated.holds(row.updated_at)
    )


@pytest.fixture(scope="module", params=[1, 2])
def model(request: pytest.FixtureRequest) -> Model:
    made = Model(request.param)
    made.write(80)
    made.shard.read_ended()
    made.write(120)
    merged, tail = made.shard.postings.merge_begun()
    joined = merged.with_rows(tail)
    made.write(40)
    made.shard.postings.merge_ended(joined, len(tail))
    made.write(60)
    return made


@pytest.mark.parametrize("wanted", FILTERS)
def test_statistics_count_what_is_shown(model: Model, wanted: Filter) -> None:
    rows = model.shown(wanted, NOW)
    found = reading.statistics(model.shard, wanted, NOW)
    lengths = [analyze_text(row.content.value).dl for row in rows]
    assert found.rows == len(rows)
    assert found.mean_dl == pytest.approx(max(1.0, sum(lengths) / max(len(rows), 1)))
    assert found.speakers == tuple(sorted({row.content.speaker for row in rows} - {""}))


@pytest.mark.parametrize("wanted", FILTERS)
def test_the_lexical_leg_scores_as_the_formulas_say(model: Model, wanted: Filter) -> None:
    for text in ("coffee train", "main.py", "ZX-4417-Q and rain", "unheard word", "the"):
        check_lexical(model, wanted, text)


def check_lexical(model: Model, wanted: Filter, text: str) -> None:
    query = analyze_query(text)
    rows = model.shown(wanted, NOW)
    known = reading.statistics(model.shard, wanted, NOW)
    held = {row.identity: analyze_text(row.content.value) for row in rows}
    df = [sum(term.term_id in each.term_ids for each in held.values()) for term in query.terms]
    statistics = LexicalStatistics(max(known.rows, 20), known.mean_dl, df)
    expected = []
    for identity, each in held.items():
        match = lexical_match(query, each.term_ids, each.dl, statistics)
        if match.bm25 > 0:
            expected.append((not match.exact, -match.bm25, identity, match.share))
    expected.sort()
    found = reading.lexical(model.shard, wanted, NOW, query, known, 15)
    assert [hit.identity for hit in found] == [each[2] for each in expected[:15]]
    assert [hit.bm25 for hit in found] == pytest.approx([-each[1] for each in expected[:15]])
    assert [hit.share for hit in found] == pytest.approx([each[3] for each in expected[:15]])
    assert [hit.version for hit in found] == [model.rows[hit.identity].version for hit in found]


@pytest.mark.parametrize("wanted", FILTERS)
def test_the_nearest_are_those_with_the_highest_cosines(model: Model, wanted: Filter) -> None:
    query = np.array(unit(99), np.float32)

    def cosine(vector: list[float]) -> float:
        return float(np.dot(np.array(vector), query))

    best = {
        row.identity: max(map(cosine, model.vectors[row.identity]))
        for row in model.shown(wanted, NOW)
        if model.vectors[row.identity]
    }
    expected = sorted(best, key=lambda identity: (-best[identity], identity))[:12]
    live = reading.nearest_live(model.shard, wanted, NOW, model.shard.vectors.scan(query), 12)
    assert [hit.identity for hit in live] == expected
    assert [hit.cosine for hit in live] == pytest.approx([best[identity] for identity in expected], abs=1e-5)

    owner = Filter(wanted.user_id, wanted.session_id)
    chunks = sorted(
        (-cosine(vector), row.identity)
        for row in model.rows.values()
        if row.tombstoned_at is None and passes(row, owner)
        for vector in model.vectors[row.identity]
    )
    near = reading.nearest(model.shard, wanted, model.shard.vectors.scan(query), 12)
    assert [hit.identity for hit in near] == [identity for _, identity in chunks[:12]]

    found = reading.cosines(model.shard, query, list(best))
    assert {identity: value for (identity, _), value in found.items()} == pytest.approx(best, abs=1e-5)


@pytest.mark.parametrize("wanted", FILTERS)
def test_rows_come_whole_and_as_sketches(model: Model, wanted: Filter) -> None:
    rows = {row.identity: row for row in model.shown(wanted, NOW)}
    asked = [*model.rows, Identity("never")]
    assert reading.fetch(model.shard, wanted, asked, NOW) == rows
    sketches = reading.sketches(model.shard, wanted, asked, NOW)
    assert sketches.keys() == rows.keys()
    for identity, sketch in sketches.items():
        content = rows[identity].content
        assert sketch[:6] == (
            identity, rows[identity].version, content.speaker, content.event_time or rows[identity].created_at,
            len(content.value), content.value[:400],
        )  # fmt: skip


@pytest.mark.parametrize("wanted", FILTERS)
def test_neighbours_are_the_rows_around_in_order_of_time(model: Model, wanted: Filter) -> None:
    shown = model.shown(wanted, NOW)
    seeds = [row.identity for row in shown if row.identity.session_id][:3]
    expected = []
    for session in sorted({(seed.user_id, seed.session_id) for seed in seeds}):
        members = [row for row in shown if (row.identity.user_id, row.identity.session_id) == session]
        members.sort(key=lambda row: (row.content.event_time or row.created_at, row.created_at, row.version))
        at = [place for place, row in enumerate(members) if row.identity in seeds]
        expected += [
            (row.identity, row.version, place + 1)
            for place, row in enumerate(members)
            if any(abs(place - seed) <= WINDOW for seed in at)
        ]
    found = reading.neighbours(model.shard, wanted, NOW, seeds)
    assert [(each.identity, each.version, each.position) for each in found] == expected


@pytest.mark.parametrize("wanted", FILTERS)
def test_keys_and_tags_are_found_by_name(model: Model, wanted: Filter) -> None:
    names = NamedExactly(("k3", "k7", "nothing"), ("red",))
    expected = sorted(
        (row.identity.key not in names.keys, -row.updated_at.timestamp(), row.identity, "red" in row.content.tags)
        for row in model.shown(wanted, NOW)
        if row.identity.key in names.keys or "red" in row.content.tags
    )
    found = reading.named(model.shard, wanted, NOW, names, 8)
    assert [(not hit.has_key, hit.identity, hit.has_tag) for hit in found] == [
        (no_key, identity, has_tag) for no_key, _, identity, has_tag in expected[:8]
    ]


@pytest.mark.parametrize("wanted", FILTERS)
def test_a_stretch_of_time_finds_what_happened_in_it(model: Model, wanted: Filter) -> None:
    span = Span(NOW - timedelta(minutes=7), NOW + timedelta(milliseconds=200))
    expected = sorted(
        (-(row.content.event_time or row.created_at).timestamp(), row.identity)
        for row in model.shown(wanted, NOW)
        if span.holds(row.content.event_time or row.created_at)
    )
    found = reading.happened_within(model.shard, wanted, NOW, span, 9)
    assert found == [identity for _, identity in expected[:9]]


def test_current_rows_come_whatever_has_expired(model: Model) -> None:
    alive = {identity: row for identity, row in model.rows.items() if row.tombstoned_at is None}
    assert reading.current(model.shard, list(alive)) == alive
    assert all(model.shard.is_gone(identity) == (identity not in alive) for identity in model.rows)


def test_ties_at_the_limit_go_to_the_lower_identity() -> None:
    shard = Shard(SPACE)
    for number in (3, 1, 2, 0):
        row = memory(f"k{number}", number + 1, "coffee")
        shard.put(row_from_memory(row), np.array(analyze_text("coffee").term_ids, np.uint32), 1)
        shard.put_vector(row.identity, row.version, 0, np.array(unit(5), np.float32))
    shard.read_ended()
    scanned = shard.vectors.scan(np.array(unit(5), np.float32))
    assert [hit.identity.key for hit in reading.nearest(shard, Filter(), scanned, 2)] == ["k0", "k1"]
    assert [hit.identity.key for hit in reading.nearest_live(shard, Filter(), NOW, scanned, 2)] == ["k0", "k1"]
    known = reading.statistics(shard, Filter(), NOW)
    lexical = reading.lexical(shard, Filter(), NOW, analyze_query("coffee"), known, 2)
    assert [hit.identity.key for hit in lexical] == ["k0", "k1"]


def test_a_filter_with_a_part_that_the_tier_does_not_know_is_left_to_the_database() -> None:
    assert all(map(is_known, FILTERS))
    other = Filter()
    assert not is_known(replace(other, more=replace(other.more, sources=("mail",))))
    assert not is_known(replace(other, more=replace(other.more, pinned=False)))
