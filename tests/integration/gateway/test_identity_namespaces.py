"""Namespaces and the directory over a real server and the real engine."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.identity import RunningIdentity, bearer, running_identity

from loom.identity.v1 import directory_pb2, directory_pb2_grpc, identity_pb2
from loom_common.clickhouse import ClickHouse
from loom_common.errors import AuthInsufficient, Conflict, InvalidArgument, LoomError, Unauthenticated


@pytest.fixture
async def identity(clickhouse: ClickHouse, tmp_path: Path) -> AsyncIterator[RunningIdentity]:
    async with running_identity(clickhouse, tmp_path / "keys") as running:
        yield running


def request(name: str, **more: object) -> identity_pb2.CreateNamespaceRequest:
    return identity_pb2.CreateNamespaceRequest(name=name, **more)  # type: ignore[arg-type]  # any field


async def names_of(identity: RunningIdentity, token: str, page_size: int = 100) -> list[str]:
    """Returns every page's names, in order."""
    names: list[str] = []
    page_token = ""
    while True:
        page = await identity.outside.ListNamespaces(
            identity_pb2.ListNamespacesRequest(page_size=page_size, page_token=page_token), metadata=bearer(token)
        )
        assert len(page.namespaces) <= page_size
        names += [space.name for space in page.namespaces]
        page_token = page.next_page_token
        if not page_token:
            return names


async def caller_namespaces(identity: RunningIdentity, token: str, **more: object) -> list[str]:
    answer = await identity.directory().ListCallerNamespaces(
        directory_pb2.ListCallerNamespacesRequest(**more),  # type: ignore[arg-type]  # any field
        metadata=bearer(token),
    )
    return [space.name for space in answer.namespaces]


async def test_making_a_namespace_again_changes_nothing(identity: RunningIdentity) -> None:
    admin = await identity.token("*:admin", org_admin=True)
    first = await identity.outside.CreateNamespace(request("a", owner="ada"), metadata=bearer(admin))
    again = await identity.outside.CreateNamespace(request("a", owner="bob"), metadata=bearer(admin))

    assert (first.created, again.created) == (True, False)
    assert again.namespace == first.namespace
    assert (first.namespace.org, first.namespace.kind, first.namespace.role) == ("acme", "memory", "admin")


async def test_a_namespace_of_another_kind_under_the_same_name_is_a_conflict(identity: RunningIdentity) -> None:
    await identity.namespace("a")

    with pytest.raises(Conflict):
        await identity.namespace("a", kind="code")


async def test_of_many_who_make_one_namespace_at_once_one_makes_it(identity: RunningIdentity) -> None:
    async def make(kind: str) -> bool | None:
        try:
            answer = await identity.operator.CreateNamespace(request("a", org="acme", kind=kind))
        except Conflict:
            return None
        assert answer.namespace.kind == kind
        return answer.created

    answers = await asyncio.gather(*(make(kind) for kind in ("memory", "code", "tracker") * 3))

    assert sorted(answers, key=str) == [False, False, None, None, None, None, None, None, True]


@pytest.mark.parametrize("name", ["_system", "_none", "*", "a b", "-a", "", "a/b", "x" * 129])
async def test_a_name_that_is_reserved_or_breaks_the_rule_is_refused(identity: RunningIdentity, name: str) -> None:
    with pytest.raises(InvalidArgument):
        await identity.operator.CreateNamespace(request(name, org="acme"))


@pytest.mark.parametrize("org", ["_system", "_none", "*", "a b"])
async def test_an_organisation_that_is_reserved_or_breaks_the_rule_is_refused(
    identity: RunningIdentity, org: str
) -> None:
    with pytest.raises(InvalidArgument):
        await identity.operator.CreateNamespace(request("a", org=org))


async def test_only_who_administers_the_organisation_makes_namespaces(identity: RunningIdentity) -> None:
    await identity.namespace("a")
    member = await identity.token("*:admin")
    foreign = await identity.token("*:admin", org="other", org_admin=True)

    with pytest.raises(AuthInsufficient):
        await identity.outside.CreateNamespace(request("b"), metadata=bearer(member))
    with pytest.raises(AuthInsufficient):
        await identity.outside.CreateNamespace(request("b", org="acme"), metadata=bearer(foreign))


async def test_nobody_who_may_change_nothing_makes_a_row_be_written(
    identity: RunningIdentity, clickhouse: ClickHouse
) -> None:
    await identity.namespace("a")
    reader = bearer(await identity.token("a:viewer"))

    async def rows() -> int:
        return int((await clickhouse.query("SELECT count() FROM claims")).scalar())

    before = await rows()
    for name in ("a", "never-made"):
        with pytest.raises(LoomError):
            await identity.outside.UpdateNamespace(identity_pb2.UpdateNamespaceRequest(name=name), metadata=reader)
    with pytest.raises(Unauthenticated):
        await identity.identity.sessions.use_link("guessed")
    assert await rows() == before


@pytest.mark.parametrize("page_size", [1, 2, 3, 100])
async def test_namespaces_are_listed_home_first_then_in_the_tokens_order_then_by_name(
    identity: RunningIdentity, page_size: int
) -> None:
    for name in ("e", "d", "b", "c"):
        await identity.namespace(name)
    await identity.namespace("mine", owner="sa:bot")
    await identity.namespace("secret", restricted=True)
    await identity.namespace("elsewhere", org="other")
    wide = await identity.token("d:viewer", "b:writer", "*:viewer")
    narrow = await identity.token("d:viewer", "mine:writer", "b:writer")
    trusted = await identity.token("secret:viewer", "*:viewer", subject="sa:trusted")

    assert await names_of(identity, wide, page_size) == ["mine", "d", "b", "c", "e"]
    assert await names_of(identity, narrow, page_size) == ["mine", "d", "b"]
    assert await names_of(identity, trusted, page_size) == ["secret", "b", "c", "d", "e", "mine"]


async def test_the_operator_lists_every_namespace_of_an_organisation(identity: RunningIdentity) -> None:
    await identity.namespace("b", restricted=True)
    await identity.namespace("a")
    page = await identity.operator.ListNamespaces(identity_pb2.ListNamespacesRequest(org="acme"))

    assert [(space.name, space.role) for space in page.namespaces] == [("a", "admin"), ("b", "admin")]


async def test_a_page_token_of_another_token_is_refused(identity: RunningIdentity) -> None:
    for name in ("a", "b"):
        await identity.namespace(name)
    one, two = [await identity.token("*:viewer", subject=f"sa:{n}") for n in (1, 2)]
    page = await identity.outside.ListNamespaces(identity_pb2.ListNamespacesRequest(page_size=1), metadata=bearer(one))

    with pytest.raises(InvalidArgument):
        await identity.outside.ListNamespaces(
            identity_pb2.ListNamespacesRequest(page_token=page.next_page_token), metadata=bearer(two)
        )


async def test_services_ask_what_a_forwarded_caller_reads(identity: RunningIdentity) -> None:
    for name in ("b", "a"):
        await identity.namespace(name)
    await identity.namespace("sources", kind="code")
    await identity.namespace("mine", owner="sa:bot")
    wide = await identity.token("b:viewer", "sources:viewer", "*:viewer")

    assert await caller_namespaces(identity, wide) == ["mine", "b", "sources", "a"]
    assert await caller_namespaces(identity, wide, kinds=["memory"]) == ["mine", "b", "a"]
    assert await caller_namespaces(identity, wide, kinds=["memory"], limit=2) == ["mine", "b"]
    assert await caller_namespaces(identity, await identity.token("a:viewer")) == ["a"]


async def test_services_ask_about_a_namespace(identity: RunningIdentity) -> None:
    await identity.namespace("a", owner="ada", restricted=True, kind="code")
    ask = identity.directory().GetNamespaceInfo
    known = await ask(directory_pb2.GetNamespaceInfoRequest(org="acme", namespace="a"))

    assert known.found
    assert (known.namespace.kind, known.namespace.owner, known.namespace.restricted) == ("code", "ada", True)
    assert known.namespace.role == ""
    for org, name in (("acme", "b"), ("other", "a"), ("_system", "_none")):
        missing = await ask(directory_pb2.GetNamespaceInfoRequest(org=org, namespace=name))
        assert not missing.found


async def test_the_directory_is_closed_to_callers_without_a_service_credential(identity: RunningIdentity) -> None:
    await identity.namespace("a")
    token = await identity.token("a:admin", org_admin=True)
    outside = directory_pb2_grpc.DirectoryServiceStub(identity.channel())
    calls = (
        lambda metadata: outside.GetNamespaceInfo(
            directory_pb2.GetNamespaceInfoRequest(org="acme", namespace="a"), metadata=metadata
        ),
        lambda metadata: outside.ListCallerNamespaces(directory_pb2.ListCallerNamespacesRequest(), metadata=metadata),
    )

    for call in calls:
        with pytest.raises(Unauthenticated):
            await call(())
        with pytest.raises(AuthInsufficient):
            await call(bearer(token))
    stream = outside.WatchRevocations(directory_pb2.WatchRevocationsRequest(), metadata=bearer(token), timeout=10)
    with pytest.raises(AuthInsufficient):
        await anext(aiter(stream))


async def test_a_service_that_forwards_no_caller_has_no_namespaces(identity: RunningIdentity) -> None:
    with pytest.raises(Unauthenticated):
        await identity.directory().ListCallerNamespaces(directory_pb2.ListCallerNamespacesRequest())
