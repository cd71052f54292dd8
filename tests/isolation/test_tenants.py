"""No tenant, namespace or user sees another's memories, whichever operation and transport asks."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from support.up import UpProcess, grpcurl, loom_up, run_loom

SECRETS = {
    "acme/main": "Acme's merger with Zenith closes in March",
    "acme/legal": "Acme's lawyers settle the Zenith lawsuit in March",
    "umbra/main": "Umbra buys Zenith's shares in March",
}
QUERIES = ("Zenith", "what happens in March?", "merger lawsuit shares")


@dataclass
class Tenants:
    up: UpProcess
    tokens: dict[str, str]

    def answer(self, holder: str, op: str, body: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = self.up.post(op, body, token=self.tokens[holder]).json()
        return found


def token(up: UpProcess, org: str, *namespaces: str, role: str = "writer", **options: Any) -> str:
    named = [word for name in namespaces for word in ("--namespace", name)]
    flags = [f"--{name.replace('_', '-')}" for name, value in options.items() if value is True]
    done = run_loom(
        "token", "create", "--org", org, "--role", role, *named, *flags, "--json", "--data-dir", up.data_dir
    )
    assert done.returncode == 0, done.stderr
    return str(json.loads(done.stdout)["token"])


@pytest.fixture(scope="module")
def tenants(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tenants]:
    with loom_up(tmp_path_factory.mktemp("tenants") / "data") as up:
        admins = {}
        for org in ("acme", "umbra"):
            method = "loom.identity.v1.IdentityService/CreateNamespace"
            for name in ("main", "legal"):
                body = json.dumps({"org": org, "name": name})
                key = operator_credential(up)
                made = grpcurl("-H", f"x-loom-service: {key}", "-d", body, up.address("identity"), method)
                assert made.returncode == 0, made.stderr
            admins[org] = token(up, org, "*", role="admin", org_admin=True)
        tokens = {
            "acme/main": token(up, "acme", "main"),
            "acme/legal": token(up, "acme", "legal"),
            "umbra/main": token(up, "umbra", "main"),
            "acme/*": admins["acme"],
            "umbra/*": admins["umbra"],
        }
        tenants = Tenants(up, tokens)
        for place, text in SECRETS.items():
            done = tenants.answer(place, "memory.set", {"value": text, "key": "zenith", "user_id": "u1"})
            assert done["stored"]
        yield tenants


def operator_credential(up: UpProcess) -> str:
    from loom_common.auth.service_credentials import ServiceKey

    return ServiceKey.load(up.data_dir / "keys" / "operator.jwk").mint()


def texts(answer: Any) -> set[str]:
    """Returns every stored text that shows anywhere in an answer."""
    shown = json.dumps(answer)
    return {place for place, text in SECRETS.items() if text[:20] in shown}


@pytest.mark.parametrize("holder", SECRETS)
@pytest.mark.parametrize("query", QUERIES)
def test_a_search_shows_the_holders_own_namespace_alone_in_every_mode(
    tenants: Tenants, holder: str, query: str
) -> None:
    for mode in ("hybrid", "lexical", "vector"):
        found = tenants.answer(holder, "memory.search", {"query": query, "search_mode": mode, "top_k": 100})
        assert texts(found) <= {holder}
    for scope in ("this", "all_mine"):
        found = tenants.answer(holder, "search.query", {"query": query, "namespace_scope": scope, "bodies": "full"})
        assert texts(found) <= {holder}


@pytest.mark.parametrize("holder", SECRETS)
def test_an_answer_is_made_of_the_holders_own_namespace_alone(tenants: Tenants, holder: str) -> None:
    for op, body in (("memory.ask", {"question": "Zenith"}), ("memory.brief", {"topic": "Zenith"})):
        found = tenants.answer(holder, op, body)
        assert found["evidence"]
        assert texts(found) == {holder}


@pytest.mark.parametrize("holder", SECRETS)
def test_the_same_key_in_another_namespace_or_organisation_is_another_memory(tenants: Tenants, holder: str) -> None:
    for op, field in (("memory.get", "memory"), ("memory.history", "versions")):
        found = tenants.answer(holder, op, {"key": "zenith", "user_id": "u1"})
        assert found[field]
        assert texts(found) == {holder}
    assert texts(tenants.answer(holder, "memory.list", {"page_size": 500})) == {holder}


@pytest.mark.parametrize("holder", SECRETS)
def test_a_callers_sql_reads_the_namespaces_that_the_call_names_and_its_token_holds(
    tenants: Tenants, holder: str
) -> None:
    org, namespace = holder.split("/")
    sql = "SELECT DISTINCT org, namespace FROM memory UNION DISTINCT SELECT org, namespace FROM memory_versions"
    found = tenants.answer(holder, "insights.query", {"sql": sql})
    assert found["rows"] == [[org, namespace]]
    assert found["namespaces"] == [namespace]
    refused = tenants.answer(holder, "insights.query", {"sql": "SELECT value FROM memory"})
    assert refused["error"]["code"] == "QUERY_REJECTED"
    others = tenants.answer(holder, "insights.query", {"sql": sql, "namespaces": ["main", "legal"]})
    assert others["error"]["code"] == "AUTH_INSUFFICIENT"
    wide = tenants.answer(f"{org}/*", "insights.query", {"sql": sql, "namespace": "main", "namespaces": ["legal"]})
    assert {row[0] for row in wide["rows"]} == {org}


@pytest.mark.parametrize(
    ("holder", "foreign"),
    [
        ("acme/main", {"namespace": "legal"}),
        ("acme/main", {"org": "umbra"}),
        ("acme/main", {"org": "umbra", "namespace": "main"}),
        ("umbra/main", {"org": "acme", "namespace": "main"}),
        ("acme/*", {"org": "umbra", "namespace": "main"}),
        ("acme/main", {"namespace": "*"}),
        ("acme/main", {"namespace": "_system"}),
        ("acme/main", {"namespace": "never-made"}),
    ],
)
@pytest.mark.parametrize(
    ("op", "body"),
    [
        ("memory.get", {"key": "zenith", "user_id": "u1"}),
        ("memory.history", {"key": "zenith", "user_id": "u1"}),
        ("memory.list", {}),
        ("memory.search", {"query": "Zenith"}),
        ("search.query", {"query": "Zenith"}),
        ("memory.ask", {"question": "Zenith"}),
        ("memory.brief", {"topic": "Zenith"}),
        ("insights.query", {"sql": "SELECT 1"}),
        ("insights.catalog", {}),
        ("memory.extraction", {"extraction_id": "x-1"}),
        ("memory.set_from_messages", {"messages": [{"role": "user", "content": "overwritten"}], "verbatim": True}),
        ("memory.set", {"value": "overwritten", "key": "zenith", "user_id": "u1"}),
        ("memory.set_many", {"items": [{"value": "overwritten", "key": "zenith", "user_id": "u1"}]}),
        ("memory.delete", {"key": "zenith", "user_id": "u1"}),
        ("knowledge.ingest", {"documents": [{"source_uri": "zenith.md", "text": "overwritten"}]}),
        ("knowledge.search", {"query": "Zenith"}),
        ("knowledge.get", {"source_uri": "zenith.md"}),
        ("knowledge.outline", {"source_uri": "zenith.md"}),
        ("knowledge.list", {}),
        ("knowledge.inspect", {"source_uri": "zenith.md"}),
        ("knowledge.delete", {"source_uri": "zenith.md"}),
        ("knowledge.synthesize", {"source_uris": ["zenith.md"]}),
        ("usage.summary", {}),
        ("calibration.get", {}),
        ("code.calibrate", {"reset": True}),
        ("assistant.ask", {"question": "Zenith?"}),
    ],
)
def test_a_foreign_scope_is_refused_by_every_operation_and_nothing_is_shown_or_changed(
    tenants: Tenants, holder: str, foreign: dict[str, str], op: str, body: dict[str, Any]
) -> None:
    answer = tenants.answer(holder, op, {**body, **foreign})
    assert answer["error"]["code"] in ("AUTH_INSUFFICIENT", "NOT_FOUND", "INVALID_ARGUMENT")
    assert texts(answer) == set()
    for place, text in SECRETS.items():
        held = tenants.answer(place, "memory.get", {"key": "zenith", "user_id": "u1"})
        assert held["memory"]["value"] == text


def test_a_page_token_of_one_tenant_is_no_key_to_anothers_pages(tenants: Tenants) -> None:
    for number in range(3):
        tenants.answer("acme/main", "memory.set", {"value": f"page {number}", "key": f"page-{number}"})
    page = tenants.answer("acme/main", "memory.list", {"page_size": 1})
    other = tenants.answer("umbra/main", "memory.list", {"page_size": 1, "page_token": page["next_page_token"]})
    assert texts(other) <= {"umbra/main"}


def test_a_header_cannot_widen_what_a_token_may_read(tenants: Tenants) -> None:
    import httpx

    headers = {"Authorization": f"Bearer {tenants.tokens['acme/main']}", "X-Loom-Namespace": "legal"}
    answer = httpx.post(f"{tenants.up.http_url}/v1/memory.list", json={}, headers=headers, timeout=30)
    assert answer.json()["error"]["code"] == "AUTH_INSUFFICIENT"


def test_an_organisations_admin_reads_every_namespace_of_it_and_none_of_another(tenants: Tenants) -> None:
    for name in ("main", "legal"):
        assert texts(tenants.answer("acme/*", "memory.list", {"namespace": name})) == {f"acme/{name}"}
    assert texts(tenants.answer("umbra/*", "memory.list", {"namespace": "main"})) == {"umbra/main"}


def test_deleting_one_tenants_memory_leaves_the_others(tenants: Tenants) -> None:
    body = {"value": "gone soon", "key": "shared-key"}
    for place in SECRETS:
        tenants.answer(place, "memory.set", body)
    assert tenants.answer("acme/main", "memory.delete", {"key": "shared-key"})["deleted"]
    assert not tenants.answer("acme/main", "memory.get", {"key": "shared-key"})["found"]
    for place in ("acme/legal", "umbra/main"):
        assert tenants.answer(place, "memory.get", {"key": "shared-key"})["found"]


def test_a_token_of_one_user_sees_and_changes_that_users_memories_alone(tenants: Tenants) -> None:
    for user in ("ann", "bob"):
        tenants.answer(
            "acme/main", "memory.set", {"value": f"{user} lives in a lighthouse", "key": "home", "user_id": user}
        )
    made = tenants.answer(
        "acme/main",
        "token.create",
        {"namespaces": [{"namespace": "main", "role": "writer"}], "read_scope": "own_user", "user_id": "ann"},
    )
    tenants.tokens["ann"] = made["token"]
    for body in ({}, {"user_id": "ann"}):
        listed = json.dumps(tenants.answer("ann", "memory.list", body))
        assert "ann lives" in listed
        assert "bob lives" not in listed
    for op, body in (
        ("memory.list", {"user_id": "bob"}),
        ("memory.get", {"key": "home", "user_id": "bob"}),
        ("memory.search", {"query": "lighthouse", "user_id": "bob"}),
        ("memory.set", {"value": "moved", "key": "home", "user_id": "bob"}),
        ("memory.delete", {"key": "home", "user_id": "bob"}),
        ("memory.set", {"value": "for everyone", "key": "shared"}),
    ):
        answer = tenants.answer("ann", op, body)
        assert "bob lives" not in json.dumps(answer)
        assert answer.get("error", {}).get("code") == "AUTH_INSUFFICIENT" or op == "memory.set", (op, body, answer)
    found = json.dumps(tenants.answer("ann", "memory.search", {"query": "lighthouse", "top_k": 100}))
    assert "ann lives" in found
    assert "bob lives" not in found
    assert tenants.answer("acme/main", "memory.get", {"key": "home", "user_id": "bob"})["memory"]["value"].startswith(
        "bob"
    )


def test_a_restricted_namespace_is_not_there_for_whoever_was_not_given_it_by_name(tenants: Tenants) -> None:
    method = "loom.identity.v1.IdentityService/CreateNamespace"
    body = json.dumps({"org": "acme", "name": "vault", "restricted": True})
    key = operator_credential(tenants.up)
    assert grpcurl("-H", f"x-loom-service: {key}", "-d", body, tenants.up.address("identity"), method).returncode == 0
    tenants.tokens["acme/vault"] = token(tenants.up, "acme", "vault")
    secret = {"value": "The vault's Zenith code is 7-4-1", "key": "code"}
    assert tenants.answer("acme/vault", "memory.set", secret)["stored"]

    for op, asked in (
        ("memory.get", {"key": "code"}),
        ("memory.history", {"key": "code"}),
        ("memory.list", {}),
        ("memory.search", {"query": "Zenith code"}),
        ("search.query", {"query": "Zenith code"}),
        ("memory.ask", {"question": "Zenith code"}),
        ("memory.set", {"value": "overwritten", "key": "code"}),
        ("memory.delete", {"key": "code"}),
    ):
        for place in ({"namespace": "vault"}, {"namespace": "vault", "org": "acme"}):
            refused = tenants.answer("acme/*", op, {**asked, **place})
            assert refused["error"]["code"] == "NOT_FOUND", (op, refused)
    # Nor does a search over all that an administrator reads find it, nor a list show it, nor a token pass it on.
    wide = tenants.answer("acme/*", "search.query", {"namespace": "main", "query": "Zenith code", "bodies": "full"})
    assert "7-4-1" not in json.dumps(wide)
    listed = tenants.answer("acme/*", "namespace.list", {})
    assert "vault" not in [space["name"] for space in listed["namespaces"]]
    for op, asked in (
        ("token.create", {"namespaces": [{"namespace": "vault", "role": "viewer"}]}),
        ("grants.set", {"subject": "sa:new", "on_namespace": "vault", "role": "viewer"}),
        ("namespace.update", {"name": "vault", "restricted": False}),
    ):
        assert tenants.answer("acme/*", op, asked)["error"]["code"] in ("AUTH_INSUFFICIENT", "NOT_FOUND")
    assert "7-4-1" in json.dumps(tenants.answer("acme/vault", "memory.search", {"query": "Zenith code"}))


@pytest.mark.parametrize(
    ("op", "body"),
    [
        ("namespace.update", {"name": "main", "classification": "x"}),
        ("grants.list", {}),
        ("grants.set", {"subject": "sa:x", "on_namespace": "main", "role": "viewer"}),
        ("grants.remove", {"subject": "sa:x", "on_namespace": "main"}),
        ("org.get", {}),
        ("org.update", {"display_name": "x"}),
        ("org.list_trusts", {}),
        ("org.remove_trust", {"name": "x"}),
        ("org.set_account", {"subject": "sa:x", "disabled": True}),
        ("org.list_accounts", {}),
        ("token.revoke", {"subject": "sa:operator"}),
        ("token.revoke", {"session": "x"}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_another_organisations_admin_manages_nothing_here(tenants: Tenants, op: str, body: dict[str, Any]) -> None:
    assert tenants.answer("acme/*", op, {**body, "org": "umbra"})["error"]["code"] == "AUTH_INSUFFICIENT"
