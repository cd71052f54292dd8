"""Calls over HTTP, through the gateway, to real gRPC services and back."""

import asyncio
import json

import httpx
import pytest
from support.gateway import GatewayUnderTest, claims, gateway, raising

from loom_common.attribution import Attribution
from loom_common.auth.claims import NamespaceGrant, Role
from loom_common.auth.revocations import Revocation
from loom_common.auth.tokens import SigningKey, sign_token
from loom_common.errors import BackendUnavailable, Conflict, EmbedTimeout, InternalError
from loom_common.ops import all_ops
from loom_gateway.contract.catalogue import Catalogue

__all__ = ["gateway"]


def code_of(response: httpx.Response) -> str:
    error = response.json()["error"]
    assert set(error) == {"code", "message", "status", "detail", "request_id"}
    assert error["status"] == response.status_code
    assert error["request_id"] == response.headers["X-Request-Id"]
    return str(error["code"])


async def test_a_memory_set_over_http_is_read_back_with_empty_values_and_plain_numbers(
    gateway: GatewayUnderTest,
) -> None:
    async with gateway.client() as client:
        stored = await client.post("/v1/memory.set", json={"key": "k", "value": "grüße 配置", "importance": 0.66})
        assert stored.status_code == 200, stored.text
        assert stored.json()["version"] == 1
        found = await client.post("/v1/memory.get", json={"key": "k"})
        missed = await client.post("/v1/memory.get", json={"key": "other"})
    memory = found.json()["memory"]
    assert memory["value"] == "grüße 配置"
    assert memory["importance"] == 0.66
    assert memory["tags"] == []
    assert memory["pinned"] is False
    assert missed.json() == {"found": False}
    assert found.headers["Cache-Control"] == "no-store"


async def test_a_search_without_hits_shows_an_empty_list(gateway: GatewayUnderTest) -> None:
    async with gateway.client() as client:
        answer = await client.post("/v1/search.query", json={"query": "nothing"})
    told = {"hits": [], "candidates_total": 0, "abstain_code": "no_match", "error": "", "embedding_pending": 0}
    assert told.items() <= answer.json()["memory"].items()


async def test_a_similarity_is_the_number_that_the_service_sent(gateway: GatewayUnderTest) -> None:
    async with gateway.client() as client:
        await client.post("/v1/memory.set", json={"key": "k", "value": "deploy on friday"})
        answer = await client.post("/v1/search.query", json={"query": "deploy"})
    assert '"similarity":0.66,' in answer.text


async def test_the_service_sees_the_callers_token_its_attribution_and_its_headers(gateway: GatewayUnderTest) -> None:
    token = gateway.token()
    headers = {
        "X-Loom-Namespace": "team-a",
        "X-Loom-Run-Id": "run-1",
        "X-Loom-Code-Scope": "acme/repo",
        "Idempotency-Key": "once",
        "X-Request-Id": "req-1",
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    }
    async with gateway.client(token, **headers) as client:
        answer = await client.post("/v1/memory.set", json={"value": "x", "user_id": "u1"})
    assert answer.headers["X-Request-Id"] == "req-1"
    seen = gateway.services.seen[-1]
    assert seen.metadata["authorization"] == f"Bearer {token}"
    assert seen.metadata["x-loom-namespace"] == "team-a"
    assert seen.metadata["x-loom-run-id"] == "run-1"
    assert seen.metadata["idempotency-key"] == "once"
    assert "x-loom-code-scope" not in seen.metadata
    assert seen.call.peer_service == "gateway"
    assert seen.call.request_id == "req-1"
    assert seen.call.attribution == Attribution(
        org="acme", namespace="team-a", subject="sa:bot", user_id="u1", feature="memory.set", run_id="run-1"
    )


@pytest.mark.parametrize("given", ["", "has space", "x" * 200, "line\tend", 'quote"', "{{7*7}}"])
async def test_a_request_id_that_is_none_is_replaced(gateway: GatewayUnderTest, given: str) -> None:
    async with gateway.client(**{"X-Request-Id": given}) as client:
        answer = await client.post("/v1/memory.get", json={"key": "k"})
    assert answer.headers["X-Request-Id"] not in ("", given)


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (Conflict("The version differs.", detail={"version": 3}), 409, "CONFLICT"),
        (EmbedTimeout("The embedding did not come."), 503, "EMBED_TIMEOUT"),
        (BackendUnavailable("The database is away.", retry_after_s=7), 503, "BACKEND_UNAVAILABLE"),
        (InternalError(), 500, "INTERNAL"),
    ],
)
async def test_a_services_error_is_answered_with_its_reason(
    gateway: GatewayUnderTest, error: Exception, status: int, code: str
) -> None:
    gateway.services.replies["memory.get"] = raising(error)  # type: ignore[arg-type]  # all are LoomErrors
    async with gateway.client() as client:
        answer = await client.post("/v1/memory.get", json={"key": "k"})
    assert answer.status_code == status
    assert code_of(answer) == code
    if code == "BACKEND_UNAVAILABLE":
        assert answer.headers["Retry-After"] == "7"
    if code == "CONFLICT":
        assert answer.json()["error"]["detail"]["version"] == 3


async def test_a_defect_of_a_service_shows_nothing_of_itself(gateway: GatewayUnderTest) -> None:
    def broken(_request: object) -> object:
        raise RuntimeError("secret text of a driver")

    gateway.services.replies["memory.get"] = broken
    async with gateway.client() as client:
        answer = await client.post("/v1/memory.get", json={"key": "k"})
    assert answer.status_code == 500
    assert code_of(answer) == "INTERNAL"
    assert "secret" not in answer.text


async def test_no_token_a_foreign_an_expired_and_a_revoked_one_are_refused_before_the_body_is_read(
    gateway: GatewayUnderTest,
) -> None:
    foreign = sign_token(claims(), SigningKey.generate())
    expired = sign_token(claims(exp=1.0), gateway.key)
    ended = claims(jti="ended")
    gateway.identity.revocations.add(Revocation("token", "ended", 1.0))
    cases = {
        None: "UNAUTHENTICATED",
        "a b": "UNAUTHENTICATED",
        "nonsense": "UNAUTHENTICATED",
        foreign: "UNAUTHENTICATED",
        expired: "TOKEN_EXPIRED",
        sign_token(ended, gateway.key): "TOKEN_REVOKED",
    }
    for token, reason in cases.items():
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        async with gateway.client(None) as client:
            answer = await client.post("/v1/memory.get", content=b"not json at all", headers=headers)
        assert answer.status_code == 401, (token, answer.text)
        assert code_of(answer) == reason
        assert answer.headers["WWW-Authenticate"].startswith("Bearer")
    assert gateway.services.seen == []


async def test_a_role_that_is_too_small_is_refused_by_the_service(gateway: GatewayUnderTest) -> None:
    async with gateway.client(gateway.token(Role.VIEWER)) as client:
        answer = await client.post("/v1/memory.set", json={"value": "x"})
    assert answer.status_code == 403
    assert code_of(answer) == "AUTH_INSUFFICIENT"
    assert gateway.services.seen == []


async def test_a_header_that_contradicts_the_body_is_refused(gateway: GatewayUnderTest) -> None:
    async with gateway.client(**{"X-Loom-Namespace": "team-b"}) as client:
        answer = await client.post("/v1/memory.get", json={"key": "k", "namespace": "team-a"})
    assert code_of(answer) == "INVALID_ARGUMENT"


async def test_internal_common_and_unknown_operations_are_not_there(gateway: GatewayUnderTest) -> None:
    hidden = [name for name in all_ops() if name not in {*Catalogue(), *Catalogue().streams}]
    assert {"embedding.embed_query", "ledger.record", "status.get"} & set(hidden)
    async with gateway.client() as client:
        for name in [*hidden, "memory.nothing", "x" * 300, "memory.set%00", "..%2fmetrics"]:
            answer = await client.post(f"/v1/{name}", json={})
            assert answer.status_code == 404, name
            assert code_of(answer) == "UNKNOWN_OP"


async def test_a_wrong_method_or_address_is_answered_in_the_one_shape(gateway: GatewayUnderTest) -> None:
    async with gateway.client() as client:
        wrong = await client.get("/v1/memory.get")
        assert wrong.status_code == 405
        assert wrong.headers["Allow"] == "POST"
        assert code_of(wrong) == "MALFORMED_REQUEST"
        for method, path in (
            ("PUT", "/v1/memory.get"),
            ("DELETE", "/mcp"),
            ("GET", "/mcp"),
            ("OPTIONS", "/v1/memory.get"),
        ):
            assert code_of(await client.request(method, path)) == "MALFORMED_REQUEST"
        missing = await client.get("/nothing")
        assert missing.status_code == 404
        assert code_of(missing) == "UNKNOWN_OP"


async def test_one_ledger_row_stands_for_each_call_refused_ones_included(gateway: GatewayUnderTest) -> None:
    async with gateway.client(**{"X-Loom-Run-Id": "run-1"}) as client:
        await client.post("/v1/memory.set", json={"key": "k", "value": "a secret", "user_id": "u1"})
        await client.post("/v1/search.query", json={"query": "secret"})
        await client.post("/v1/memory.get", json={"key": "k", "wrong": 1})
        await client.post("/v1/memory.get", json={"key": "k", "namespace": "not-mine"})
        await client.post("/v1/no.such", json={})
    async with gateway.client(None) as client:
        await client.post("/v1/memory.get", json={"key": "k"})
    rows = [entry.row for entry in gateway.ledger.entries]
    assert [(row.op, row.status, row.org, row.namespace, row.refused) for row in rows] == [
        ("memory.set", "ok", "acme", "team-a", False),
        ("search.query", "ok", "acme", "team-a", False),
        ("memory.get", "MALFORMED_REQUEST", "acme", "_none", True),
        ("memory.get", "AUTH_INSUFFICIENT", "acme", "_none", True),
        ("_unknown", "UNKNOWN_OP", "acme", "_none", True),
        ("memory.get", "UNAUTHENTICATED", "_none", "_none", True),
    ]
    assert {row.transport for row in rows} == {"http"}
    assert {row.recorder for row in rows} == {"gateway"}
    assert (rows[0].subject, rows[0].user_id, rows[0].run_id, rows[0].args["key"]) == ("sa:bot", "u1", "run-1", "k")
    assert rows[1].out_hits == 1
    assert "a secret" not in str(gateway.ledger.entries)


async def test_an_org_wide_token_leaves_no_row_in_a_namespace_that_it_was_refused(gateway: GatewayUnderTest) -> None:
    token = gateway.token(namespaces=(NamespaceGrant("*", Role.WRITER),))
    async with gateway.client(token) as client:
        refused = await client.post("/v1/memory.get", json={"key": "k", "namespace": "nowhere"})
        found = await client.post("/v1/memory.get", json={"key": "k", "namespace": "team-a"})
    assert (code_of(refused), found.status_code) == ("NOT_FOUND", 200)
    assert [entry.row.namespace for entry in gateway.ledger.entries] == ["_none", "team-a"]


async def test_concurrent_calls_keep_their_own_callers(gateway: GatewayUnderTest) -> None:
    grants = (NamespaceGrant("team-a", Role.WRITER),)
    tokens = {f"sa:bot-{place}": gateway.token(sub=f"sa:bot-{place}", namespaces=grants) for place in range(20)}
    async with gateway.client(None) as client:
        await asyncio.gather(
            *(
                client.post(
                    "/v1/memory.set",
                    json={"key": subject, "value": subject},
                    headers={"Authorization": f"Bearer {token}"},
                )
                for subject, token in tokens.items()
            )
        )
    assert len(gateway.services.seen) == 20
    for seen in gateway.services.seen:
        assert seen.call.claims is not None
        assert seen.request.key == seen.call.claims.sub
        assert seen.call.attribution is not None
        assert seen.call.attribution.subject == seen.request.key


async def test_a_service_that_is_away_is_told_with_a_wait(gateway: GatewayUnderTest) -> None:
    gateway.services.replies["usage.summary"] = raising(BackendUnavailable("The database is away."))
    async with gateway.client() as client:
        answer = await client.post("/v1/usage.summary", json={})
        alive = await client.post("/v1/memory.get", json={"key": "k"})
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
    assert alive.status_code == 200


async def test_json_of_an_answer_is_utf8_without_escapes(gateway: GatewayUnderTest) -> None:
    async with gateway.client() as client:
        await client.post("/v1/memory.set", json={"key": "k", "value": '東京 \u2028 "quoted"'})
        answer = await client.post("/v1/memory.get", json={"key": "k"})
    assert "東京" in answer.content.decode("utf-8")
    assert json.loads(answer.content)["memory"]["value"] == '東京 \u2028 "quoted"'
