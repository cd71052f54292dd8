"""Random sequences of calls against a model of what a memory store is."""

import itertools
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.memory import MemoryHarness

from loom_common.call import Scope
from loom_common.errors import Conflict
from loom_memory.app.search import SearchMode
from loom_memory.domain.memory import Filter

_NAMESPACES = itertools.count(1)
KEYS = st.sampled_from(["a", "b", "k \u00e9\n'\\"])
VALUES = st.sampled_from(["espresso", "violin", "kernel", "\u5496\u5561"])
USERS = st.sampled_from(["", "u1"])
EXPECTED = st.one_of(st.none(), st.integers(0, 4))

STEPS = st.one_of(
    st.tuples(st.just("set"), KEYS, USERS, VALUES, EXPECTED),
    st.tuples(st.just("delete"), KEYS, USERS, st.none(), st.none()),
    st.tuples(st.just("read"), KEYS, USERS, VALUES, st.none()),
)


@dataclass
class Model:
    """What should be held: the versions since the last deletion, and the last revision of every key ever written."""

    versions: dict[tuple[str, str], list[tuple[int, str]]] = field(default_factory=dict)
    revisions: dict[tuple[str, str], int] = field(default_factory=dict)
    order: list[tuple[str, str]] = field(default_factory=list)

    def live(self, identity: tuple[str, str]) -> tuple[int, str] | None:
        held = self.versions.get(identity, [])
        return held[-1] if held else None


@pytest.mark.slow
@settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(STEPS, min_size=4, max_size=12))
async def test_any_sequence_of_calls_answers_as_the_model_does(
    memory: MemoryHarness, steps: list[tuple[str, str, str, str, int | None]]
) -> None:
    memory.scope = Scope("acme", f"model{next(_NAMESPACES)}")
    model = Model()
    for action, key, user, value, expected in steps:
        identity = (key, user)
        if action == "set":
            await _set(memory, model, identity, value, expected)
        elif action == "delete":
            assert await memory.delete(key, user) == (model.live(identity) is not None)
            model.versions[identity] = []
            model.order = [each for each in model.order if each != identity]
        else:
            await _check(memory, model, identity, value)
    listed = [(each.identity.key, each.identity.user_id) for each in await memory.list_all(page_size=2)]
    assert listed == model.order


async def _set(
    memory: MemoryHarness, model: Model, identity: tuple[str, str], value: str, expected: int | None
) -> None:
    key, user = identity
    live = model.live(identity)
    if expected is not None and expected != (live[0] if live else 0):
        with pytest.raises(Conflict):
            await memory.set(key, value, user_id=user, expected=expected)
        return
    written = await memory.set(key, value, user_id=user, expected=expected)
    if live is not None and live[1] == value:
        assert (written.stored, written.revision) == (False, live[0])
        return
    model.revisions[identity] = model.revisions.get(identity, 0) + 1
    assert (written.stored, written.revision) == (True, model.revisions[identity])
    model.versions.setdefault(identity, []).append((written.revision, value))
    model.order = [identity, *(each for each in model.order if each != identity)]


async def _check(memory: MemoryHarness, model: Model, identity: tuple[str, str], value: str) -> None:
    key, user = identity
    held = await memory.get(key, user)
    assert (None if held is None else (held.revision, held.content.value)) == model.live(identity)
    if not user:
        versions = (await memory.history(key)).memories
        assert [(each.revision, each.content.value) for each in reversed(versions)] == model.versions.get(identity, [])
    expected = {each for each in model.versions if (live := model.live(each)) is not None and live[1] == value}
    for mode in SearchMode:
        hits = (await memory.search(value, mode=mode, top_k=50, wanted=Filter(user_id=user or None))).hits
        found = {(hit.memory.identity.key, hit.memory.identity.user_id) for hit in hits if not hit.low}
        assert found == {each for each in expected if not user or each[1] == user}
