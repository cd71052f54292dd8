"""Which namespaces a search over several reads, and how it merges what they answer."""

from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from loom_common.auth.claims import Claims, NamespaceGrant, Role
from loom_common.auth.directory import FakeDirectory, NamespaceInfo
from loom_common.call import Call, Scope, bind
from loom_common.errors import BackendUnavailable, EmbedTimeout, LoomError
from loom_memory.app.search import SearchQuery
from loom_memory.app.search.namespaces import CallerNamespaces, FanOut, NamespaceScope, ReadNamespaces, reads
from loom_memory.app.search.several import SeveralSearch
from loom_memory.domain.memory import Content, Filter, Hit, Identity, Memory, SearchResult

HOME, OTHER, CODE = Scope("acme", "home"), Scope("acme", "other"), Scope("acme", "code")
NOW = datetime(2026, 11, 30, tzinfo=UTC)
ANN = "ann@example.com"


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


class LyingDirectory(FakeDirectory):
    """Names more than the caller may read."""

    async def caller_namespaces(self, kinds: Sequence[str] = (), limit: int = 64) -> list[NamespaceInfo]:
        return list(self.infos.values())


class LostDirectory(FakeDirectory):
    async def caller_namespaces(self, kinds: Sequence[str] = (), limit: int = 64) -> list[NamespaceInfo]:
        raise BackendUnavailable("away")


def hit(scope: Scope, key: str, score: float, *, low: bool = False) -> Hit:
    memory = Memory(scope, Identity(key), Content(key), "human:ann", 1, 1, NOW, NOW)
    return Hit(memory, score, None, low)


def directory(*infos: NamespaceInfo) -> FakeDirectory:
    kinds = {"home": "memory", "other": "memory", "code": "code"}
    return FakeDirectory([*(NamespaceInfo("acme", name, kind) for name, kind in kinds.items()), *infos])


def claims(*grants: str) -> Claims:
    return Claims(ANN, "acme", tuple(NamespaceGrant(name, Role.VIEWER) for name in grants or ("*",)), "t", 0, 1)


async def read(
    known: FakeDirectory, *grants: str, scope: Scope = HOME, most: int = 8, is_named: bool = True
) -> tuple[str, list[str]]:
    namespaces = CallerNamespaces(known, FanOut(("memory",), most))
    with bind(Call(claims=claims(*grants))):
        found: ReadNamespaces = await namespaces.read_by(scope, NamespaceScope.ALL_MINE, is_named=is_named)
    return found.home.namespace, [each.namespace for each in found.others]


async def ask(
    search: CannedSearch, known: FakeDirectory, reach: NamespaceScope, top_k: int = 5
) -> tuple[list[str], SearchResult]:
    several = SeveralSearch(search, CallerNamespaces(known, FanOut(("memory",), 8)))
    with bind(Call(claims=claims())):
        result = await several.search(HOME, SearchQuery("q", Filter(), top_k), reach)
    return [each.memory.identity.key for each in result.hits], result


async def test_the_callers_memory_namespaces_follow_the_addressed_one_and_no_other_kind_does() -> None:
    assert await read(directory()) == ("home", ["other"])


async def test_a_namespace_without_a_recorded_kind_counts_as_one_of_memories() -> None:
    assert await read(LyingDirectory([NamespaceInfo("acme", "plain", "")])) == ("home", ["plain"])


async def test_the_cap_leaves_other_namespaces_out_and_does_not_count_the_leading_one() -> None:
    known = directory(*(NamespaceInfo("acme", f"n{number}") for number in range(5)))
    assert await read(known, most=0) == ("home", [])
    assert await read(known, most=2) == ("home", ["other", "n0"])


async def test_the_callers_own_namespace_leads_even_when_the_token_names_a_teammates_first() -> None:
    known = FakeDirectory([NamespaceInfo("acme", "mate"), NamespaceInfo("acme", "mine", owner=ANN)])
    asked = {"scope": Scope("acme", "mate"), "is_named": False}
    assert await read(known, "mate", "mine", **asked) == ("mine", ["mate"])  # type: ignore[arg-type]  # by name


async def test_a_namespace_that_the_caller_named_is_never_rewritten() -> None:
    known = FakeDirectory([NamespaceInfo("acme", "mate"), NamespaceInfo("acme", "mine", owner=ANN)])
    assert await read(known, "mate", "mine", scope=Scope("acme", "mate")) == ("mate", ["mine"])


async def test_without_a_namespace_of_its_own_the_tokens_first_leads() -> None:
    known = FakeDirectory([NamespaceInfo("acme", "mate"), NamespaceInfo("acme", "b", owner="bo@example.com")])
    assert await read(known, "mate", "b", scope=Scope("acme", "mate"), is_named=False) == ("mate", ["b"])


async def test_a_restricted_namespace_stays_out_unless_the_token_names_it() -> None:
    known = LyingDirectory([NamespaceInfo("acme", "home"), NamespaceInfo("acme", "vault", restricted=True)])
    assert await read(known) == ("home", [])
    assert await read(known, "home", "vault") == ("home", ["vault"])


async def test_what_a_directory_names_beyond_the_token_is_not_read() -> None:
    known = LyingDirectory([NamespaceInfo("acme", "home"), NamespaceInfo("acme", "x"), NamespaceInfo("rival", "home")])
    assert await read(known, "home") == ("home", [])


async def test_namespaces_that_cannot_be_resolved_narrow_to_the_addressed_one() -> None:
    assert await read(LostDirectory(), is_named=False) == ("home", [])


async def test_a_namespace_is_read_beside_only_by_a_token_that_reaches_it() -> None:
    known = FakeDirectory([NamespaceInfo("acme", "open"), NamespaceInfo("acme", "vault", restricted=True)])
    with bind(Call(claims=claims())):
        assert await reads(known, Scope("acme", "open"))
        assert not await reads(known, Scope("acme", "vault"))
        assert not await reads(known, Scope("acme", "none"))
    with bind(Call(claims=claims("vault"))):
        assert await reads(known, Scope("acme", "vault"))
        assert not await reads(known, Scope("acme", "open"))


async def test_this_reads_one_namespace_and_keeps_its_order() -> None:
    search = CannedSearch({HOME: SearchResult([hit(HOME, "a", 0.3), hit(HOME, "b", 0.9)], 2)})
    keys, result = await ask(search, directory(), NamespaceScope.THIS)
    assert (keys, result.candidates_total, search.asked) == (["a", "b"], 2, [HOME])


async def test_all_mine_merges_by_score_with_the_addressed_namespace_first_where_equal() -> None:
    search = CannedSearch(
        {
            OTHER: SearchResult([hit(OTHER, "o1", 0.9), hit(OTHER, "o2", 0.5), hit(OTHER, "o3", 0.2, low=True)], 3),
            HOME: SearchResult([hit(HOME, "h1", 0.5), hit(HOME, "h2", 0.4)], 2),
        }
    )
    keys, result = await ask(search, directory(), NamespaceScope.ALL_MINE)
    assert keys == ["o1", "h1", "o2", "h2", "o3"]
    assert result.candidates_total == 5
    assert set(search.asked) == {HOME, OTHER}
    keys, result = await ask(search, directory(), NamespaceScope.ALL_MINE, top_k=2)
    assert keys == ["o1", "h1"]
    assert [kept.identity.key for kept in result.kept] == ["o2", "h2", "o3"]


async def test_a_namespace_that_cannot_be_searched_fails_the_search() -> None:
    search = CannedSearch({HOME: SearchResult(), OTHER: EmbedTimeout("late")})
    with pytest.raises(EmbedTimeout):
        await ask(search, directory(), NamespaceScope.ALL_MINE)


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
    _, result = await ask(search, directory(), NamespaceScope.ALL_MINE)
    assert result.abstain_code == expected
