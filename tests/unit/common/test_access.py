"""Which claims reach which namespace for which operation."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom.memory.v1 import memory_pb2 as pb
from loom_common.auth.access import Address, address_of, authorize, require_reachable
from loom_common.auth.claims import ALL_NAMESPACES, Claims, NamespaceGrant, ReadScope, Role
from loom_common.auth.directory import FakeDirectory, NamespaceInfo
from loom_common.call import Scope
from loom_common.errors import AuthInsufficient, InvalidArgument, LoomError, NotFound, Unauthenticated
from loom_common.ops import Narrow, OpRole, all_ops

DIRECTORY = FakeDirectory(
    [NamespaceInfo("acme", "open"), NamespaceInfo("acme", "closed", restricted=True), NamespaceInfo("umbrella", "open")]
)
READ, WRITE = all_ops()["memory.get"], all_ops()["memory.set"]
NEEDED = {READ.name: Role.VIEWER, WRITE.name: Role.WRITER}

_ROLES = st.sampled_from([Role.VIEWER, Role.WRITER, Role.ADMIN])
_GRANTS = st.lists(
    st.builds(NamespaceGrant, st.sampled_from(["open", "closed", "gone", ALL_NAMESPACES]), _ROLES), max_size=4
).map(tuple)


def claims(*grants: NamespaceGrant, org_admin: bool = False, **more: object) -> Claims:
    return Claims("sa:bot", "acme", grants, "j", 0, 1, org_admin=org_admin, **more)  # type: ignore[arg-type]  # any


@given(_GRANTS, st.booleans(), st.sampled_from(["open", "closed", "gone"]), st.sampled_from([READ, WRITE]))
async def test_a_role_is_enough_exactly_where_the_rules_say_so(
    grants: tuple[NamespaceGrant, ...], org_admin: bool, namespace: str, op: object
) -> None:
    assert op in (READ, WRITE)
    spec = READ if op is READ else WRITE
    needed = NEEDED[spec.name]
    named = [grant.role for grant in grants if grant.namespace == namespace]
    wide = [grant.role for grant in grants if grant.namespace == ALL_NAMESPACES] + [Role.ADMIN] * org_admin
    allowed = any(role >= needed for role in named) or (namespace == "open" and any(role >= needed for role in wide))
    who = claims(*grants, org_admin=org_admin)
    address = Address(namespace=namespace)
    if allowed:
        assert await authorize(spec, who, address, DIRECTORY) == Scope("acme", namespace)
        return
    # Only a token that could use it, were it open, learns that there is none; one that names it is told of its role.
    could_look = any(role >= needed for role in wide)
    with pytest.raises(NotFound if could_look and not named else AuthInsufficient):
        await authorize(spec, who, address, DIRECTORY)


async def test_missing_and_restricted_are_told_in_the_same_words() -> None:
    who = claims(NamespaceGrant(ALL_NAMESPACES, Role.ADMIN))
    texts = []
    for namespace in ("gone", "closed"):
        with pytest.raises(NotFound) as caught:
            await authorize(READ, who, Address(namespace=namespace), DIRECTORY)
        texts.append(caught.value.message.replace(namespace, "?"))
    assert texts[0] == texts[1]


async def test_an_operation_of_the_organisation_needs_its_administrator() -> None:
    spec = all_ops()["namespace.create"]
    with pytest.raises(AuthInsufficient):
        await authorize(spec, claims(NamespaceGrant(ALL_NAMESPACES, Role.ADMIN)), Address(), DIRECTORY)
    assert await authorize(spec, claims(org_admin=True), Address(), DIRECTORY) == Scope("acme", "_none")


async def test_another_organisation_is_refused_to_its_administrator_too() -> None:
    for op in all_ops().values():
        if op.role is not OpRole.INTERNAL:
            with pytest.raises(AuthInsufficient):
                await authorize(op, claims(org_admin=True), Address("umbrella", "open"), DIRECTORY)


async def test_every_public_operation_refuses_a_narrow_token_or_knows_how_to_be_narrow() -> None:
    narrow = claims(NamespaceGrant("open", Role.ADMIN), read_scope=ReadScope.OWN_USER, user_id="u")
    for op in all_ops().values():
        if op.role is OpRole.INTERNAL:
            continue
        if op.narrow is Narrow.REFUSED:
            with pytest.raises(AuthInsufficient) as caught:
                require_reachable(op, narrow, None)
            assert caught.value.detail["reason"] == "narrowed"
        else:
            require_reachable(op, narrow, None)


def test_internal_operations_are_for_services_with_or_without_a_caller() -> None:
    who = claims(NamespaceGrant("open", Role.ADMIN), org_admin=True)
    for op in all_ops().values():
        if op.role is not OpRole.INTERNAL:
            continue
        require_reachable(op, None, "memory")
        require_reachable(op, who, "memory")
        with pytest.raises(AuthInsufficient):
            require_reachable(op, who, None)
        with pytest.raises(Unauthenticated):
            require_reachable(op, None, None)


def test_no_service_reaches_a_public_operation_alone_but_the_status() -> None:
    for op in all_ops().values():
        if op.role is OpRole.INTERNAL:
            continue
        if op.name == "status.get" or op.role is OpRole.OPEN:
            require_reachable(op, None, "memory")
            continue
        with pytest.raises(AuthInsufficient):
            require_reachable(op, None, "memory")


def test_the_operator_reaches_tokens_namespaces_and_organisations_and_no_data() -> None:
    reached = set()
    for op in all_ops().values():
        try:
            require_reachable(op, None, "operator")
        except LoomError:
            continue
        if op.role is not OpRole.INTERNAL:
            reached.add(op.name.partition(".")[0])
    assert reached == {"token", "namespace", "org", "grants", "status"}


@pytest.mark.parametrize(
    ("request_message", "header", "expected"),
    [
        (pb.GetMemoryRequest(), None, Address()),
        (pb.GetMemoryRequest(org="acme", namespace="a"), None, Address("acme", "a")),
        (pb.GetMemoryRequest(), "b", Address(None, "b")),
        (pb.GetMemoryRequest(namespace="b"), "b", Address(None, "b")),
    ],
)
def test_the_body_wins_and_the_header_fills(
    request_message: pb.GetMemoryRequest, header: str | None, expected: Address
) -> None:
    assert address_of(request_message, header) == expected


def test_a_namespace_that_is_sent_empty_is_not_an_absent_one() -> None:
    with pytest.raises(InvalidArgument):
        address_of(pb.GetMemoryRequest(namespace=""), None)
    with pytest.raises(InvalidArgument):
        address_of(pb.GetMemoryRequest(), "")
