from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from loom_common.auth.claims import Claims, NamespaceGrant, Role
from loom_common.auth.directory import FakeDirectory, NamespaceInfo
from loom_common.call import Call, Scope, bind
from loom_common.errors import BackendUnavailable, EmbedTimeout, LoomError
from loom_memory.app.search import SearchQuery
from loom_memory.app.unified import FanOut, NamespaceScope, UnifiedSearch
from loom_memory.domain.memory import Content, Filter, Hit, Identity, Memory, SearchResult

HOME, OTHER, CODE = Scope("acme", "home"), Scope("acme", "other"), Scope("acme", "code")
NOW = datetime(2026, 11, 30, tzinfo=UTC)


class CannedSearch:
    """Answers each namespace with what it was given."""

    def __init__(self, results: dict[Scope, SearchResult | LoomError]) -> None:
        self.results = results
        self.asked: list[Scope] = []

    async def search(self, scope: Scope, query: SearchQuery) -> SearchResult:
        self.asked.append(scope)
        result = self.results[scope]
        if isinstance(result, LoomError):
            raise result
        return result


class LostDirectory(FakeDirectory):
    async def caller_namespaces(self, kinds: Sequence[str] = (), limit: int = 64) -> list[NamespaceInfo]:
        raise BackendUnavailable("away")


def hit(scope: Scope, key: str, score: float, *, low: bool = False) -> Hit:
    memory = Memory(scope, Identity(key), Content(key), "human:ann", 1, 1, NOW, NOW)
    return Hit(memory, score, None, low)


def directory() -> FakeDirectory:
    kinds = {"home": "memory", "other": "memory", "code": "code"}
    return FakeDirectory([NamespaceInfo("acme", name, kind) for name, kind in kinds.items()])


async def ask(
    search: CannedSearch, known: FakeDirectory, reach: NamespaceScope, top_k: int = 5, most: int = 8
) -> tuple[list[str], SearchResult, str]:
    unified = UnifiedSearch(search, known, FanOut(("memory",), most))
    claims = Claims("ann@example.com", "acme", (NamespaceGrant("*", Role.VIEWER),), "t", 0, 1)
    with bind(Call(claims=claims)):
        section = await unified.search(HOME, SearchQuery("q", Filter(), top_k), reach)
    return [each.memory.identity.key for each in section.result.hits], section.result, section.error


async def test_this_reads_one_namespace_and_keeps_its_order() -> None:
    search = CannedSearch({HOME: SearchResult([hit(HOME, "a", 0.3), hit(HOME, "b", 0.9)], 2)})
    keys, result, error = await ask(search, directory(), NamespaceScope.THIS)
    assert (keys, result.candidates_total, error) == (["a", "b"], 2, "")
    assert search.asked == [HOME]


async def test_all_mine_merges_by_score_with_the_addressed_namespace_first_where_equal() -> None:
    search = CannedSearch(
        {
            OTHER: SearchResult([hit(OTHER, "o1", 0.9), hit(OTHER, "o2", 0.5), hit(OTHER, "o3", 0.2, low=True)], 3),
            HOME: SearchResult([hit(HOME, "h1", 0.5), hit(HOME, "h2", 0.4)], 2),
        }
    )
    keys, result, _ = await ask(search, directory(), NamespaceScope.ALL_MINE)
    assert keys == ["o1", "h1", "o2", "h2", "o3"]
    assert result.candidates_total == 5
    assert set(search.asked) == {HOME, OTHER}
    keys, _, _ = await ask(search, directory(), NamespaceScope.ALL_MINE, top_k=2)
    assert keys == ["o1", "h1"]


async def test_the_cap_leaves_other_namespaces_out() -> None:
    search = CannedSearch({HOME: SearchResult([hit(HOME, "h1", 0.5)], 1)})
    keys, _, _ = await ask(search, directory(), NamespaceScope.ALL_MINE, most=0)
    assert keys == ["h1"]


async def test_namespaces_that_cannot_be_resolved_narrow_to_the_addressed_one() -> None:
    search = CannedSearch({HOME: SearchResult([hit(HOME, "h1", 0.5)], 1)})
    keys, _, error = await ask(search, LostDirectory(), NamespaceScope.ALL_MINE)
    assert (keys, error) == (["h1"], "")


async def test_a_failing_leg_is_the_error_of_its_section() -> None:
    search = CannedSearch({HOME: SearchResult(), OTHER: EmbedTimeout("late")})
    keys, _, error = await ask(search, directory(), NamespaceScope.ALL_MINE)
    assert (keys, error) == ([], "EMBED_TIMEOUT")


@pytest.mark.parametrize(
    ("home", "other", "expected"),
    [
        ("empty_namespace", "no_match", "no_match"),
        ("no_match", "below_floor", "below_floor"),
        ("empty_namespace", "empty_namespace", "empty_namespace"),
    ],
)
async def test_no_hits_give_the_reason_that_says_most(home: str, other: str, expected: str) -> None:
    search = CannedSearch({HOME: SearchResult(abstain_code=home), OTHER: SearchResult(abstain_code=other)})
    _, result, _ = await ask(search, directory(), NamespaceScope.ALL_MINE)
    assert result.abstain_code == expected
