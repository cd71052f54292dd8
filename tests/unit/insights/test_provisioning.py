"""What is written on a ClickHouse server for analyses, in which order, and when nothing is."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from loom_common.analysis import allowlist
from loom_common.errors import BackendUnavailable
from loom_insights.app.fake_access import FakeAccess, FakeSecretStore
from loom_insights.app.provisioning import Provisioning, ProvisioningRefused
from loom_insights.domain.analysis import AnalysisLimits
from loom_insights.domain.server_entities import VERSION, Entities, ServerSecrets

# A change of grants or policies changes this digest. Once a VERSION has been released the change is a new one, and
# servers that hold the old are written anew.
PINNED = {1: "24530c4a61c20a55"}


def provisioning(access: FakeAccess, secrets: FakeSecretStore) -> Provisioning:
    lock = asyncio.Lock()

    @asynccontextmanager
    async def alone() -> AsyncIterator[None]:
        async with lock:
            yield

    return Provisioning(access, secrets, alone, allowlist().values(), AnalysisLimits(), 8)


def entities() -> Entities:
    return Entities("loom", tuple(allowlist().values()), "SQL_", AnalysisLimits(), 8)


def test_a_version_names_exactly_one_set_of_grants_and_policies() -> None:
    assert entities().digest == PINNED[VERSION]


def test_the_digest_does_not_depend_on_the_servers_prefix_its_caps_or_its_cluster() -> None:
    other = Entities("loom", tuple(allowlist().values()), "custom_", AnalysisLimits(time_s=1), 2, "main")
    assert other.digest == entities().digest


async def test_a_first_write_goes_from_the_user_over_policies_and_pins_to_grants_and_the_version_last() -> None:
    access, secrets = FakeAccess(), FakeSecretStore()
    done = await provisioning(access, secrets).write()
    assert done.written
    assert secrets.draws == 1
    kinds = [" ".join(statement.split()[:2]) for statement in access.written]
    policies = [place for place, kind in enumerate(kinds) if kind == "CREATE ROW"]
    grants = [place for place, kind in enumerate(kinds) if kind.startswith("GRANT")]
    pins = kinds.index("CREATE SETTINGS", policies[-1])
    assert kinds[0] == "CREATE USER"
    assert max(policies) < pins < kinds.index("REVOKE ALL") < min(grants)
    assert "loom_version" in access.written[-1]
    assert not any("loom_version" in statement for statement in access.written[:-1])
    for place in policies[::2]:
        assert "loom_analysis_others" in access.written[place]
        assert "loom_analysis_scope" in access.written[place + 1]


async def test_a_write_that_is_cut_short_at_any_step_is_finished_by_the_next_with_the_stored_key() -> None:
    whole = FakeAccess()
    await provisioning(whole, FakeSecretStore()).write()
    for step in range(len(whole.written)):
        access, secrets = FakeAccess(), FakeSecretStore()
        access.fails_after = step
        with pytest.raises(BackendUnavailable):
            await provisioning(access, secrets).write()
        assert await access.stamp() == ""
        access.fails_after, access.written = None, []
        assert (await provisioning(access, secrets).write()).written
        assert secrets.draws == 1
        assert access.written == whole.written


async def test_the_set_of_this_build_is_written_again_only_as_a_repair() -> None:
    access, secrets = FakeAccess(), FakeSecretStore()
    await provisioning(access, secrets).write()
    written = len(access.written)
    assert not (await provisioning(access, secrets).write()).written
    assert (await provisioning(access, secrets).write(repair=True)).written
    assert len(access.written) == 2 * written


async def test_the_set_of_a_newer_build_is_never_written_over() -> None:
    access, secrets = FakeAccess(stamp=f"{VERSION + 1}.abc", analyst=True), FakeSecretStore(ServerSecrets(b"k", "p"))
    assert not (await provisioning(access, secrets).write()).written
    with pytest.raises(ProvisioningRefused):
        await provisioning(access, secrets).write(repair=True)
    assert not access.written


async def test_a_column_that_comes_later_is_skipped_reported_and_granted_by_a_later_write() -> None:
    access, secrets = FakeAccess(), FakeSecretStore()
    access.absent_columns = {"memory.dl"}
    done = await provisioning(access, secrets).write()
    assert done.absent == ("memory.dl",)
    assert not any("pinned, dl" in statement for statement in access.written)
    access.absent_columns = set()
    assert (await provisioning(access, secrets).write()).written
    assert any("pinned, dl" in statement for statement in access.written if statement.startswith("GRANT"))


@pytest.mark.parametrize("fault", ["a widening policy", "another Loom", "no settings of one's own", "a lost key"])
async def test_nothing_is_written_over_what_would_widen_it_or_cannot_be_signed_for(fault: str) -> None:
    access = FakeAccess(prefix="" if fault == "no settings of one's own" else "SQL_", analyst=fault == "a lost key")
    access.foreign = ["everything ON memory"] if fault == "a widening policy" else []
    access.others = ["second"] if fault == "another Loom" else []
    with pytest.raises(ProvisioningRefused):
        await provisioning(access, FakeSecretStore()).write()
    assert not access.written


async def test_writers_at_once_write_one_after_the_other_and_once() -> None:
    access, secrets = FakeAccess(), FakeSecretStore()
    one = provisioning(access, secrets)
    done = await asyncio.gather(*(one.write() for _ in range(5)))
    assert sum(each.written for each in done) == 1


def test_no_statement_but_those_of_the_user_and_the_policies_holds_a_secret() -> None:
    secrets = ServerSecrets(bytes(range(32)), "Pass-word_1")
    for statement in entities().statements(secrets):
        if statement.startswith(("CREATE USER", "ALTER USER")) and "IDENTIFIED" in statement:
            assert secrets.password in statement
        else:
            assert secrets.password not in statement
        if not statement.startswith("CREATE ROW POLICY"):
            assert secrets.key.hex() not in statement
    assert secrets.password not in repr(secrets)
