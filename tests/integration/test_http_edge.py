"""What guards the gateway's HTTP: hosts, origins, sizes, health and the pages."""

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from support.gateway import GatewayUnderTest, gateway, running_gateway

from loom_common.errors import BackendUnavailable

__all__ = ["gateway"]

OVER = 4 * 1024 * 1024 + 1


def _code(response: httpx.Response) -> str:
    return str(response.json()["error"]["code"])


async def _raw(gateway: GatewayUnderTest, request: bytes) -> bytes:
    """Sends bytes as they are and returns what comes until the connection ends."""
    host, _, port = gateway.url.removeprefix("http://").rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(request)
        await writer.drain()
        async with asyncio.timeout(10):
            return await reader.read()
    finally:
        writer.close()
        await writer.wait_closed()


async def test_pages_of_other_origins_change_nothing_and_read_nothing(gateway: GatewayUnderTest) -> None:
    for headers in (
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": gateway.url, "Sec-Fetch-Site": "cross-site"},
        {"Origin": "http://127.0.0.1:1"},
    ):
        async with gateway.client(**headers) as client:
            for path in ("/v1/memory.set", "/mcp"):
                answer = await client.post(path, json={"value": "x"})
                assert answer.status_code == 403, (headers, path)
                assert _code(answer) == "AUTH_INSUFFICIENT"
                assert answer.json()["error"]["detail"]["reason"] == "foreign_origin"
                assert not [name for name in answer.headers if name.startswith("access-control")]
            preflight = await client.options("/v1/memory.set", headers={"Access-Control-Request-Method": "POST"})
            assert preflight.status_code in (403, 405)
            assert not [name for name in preflight.headers if name.startswith("access-control")]
    assert gateway.services.seen == []


async def test_a_page_of_the_gateways_own_origin_is_served(gateway: GatewayUnderTest) -> None:
    async with gateway.client(Origin=gateway.url, **{"Sec-Fetch-Site": "same-origin"}) as client:
        assert (await client.post("/v1/memory.get", json={"key": "k"})).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example:80", "localhost.evil.example", "[::2]", "a@b"]
)
async def test_on_loopback_a_name_that_is_not_the_machines_is_refused(gateway: GatewayUnderTest, host: str) -> None:
    async with gateway.client(Host=host) as client:
        for path in ("/v1/health", "/docs", "/mcp", "/metrics"):
            answer = await client.get(path)
            assert answer.status_code == 403, path
            assert answer.json()["error"]["detail"]["reason"] == "foreign_host"


@pytest.mark.parametrize("host", ["localhost", "localhost:9", "127.0.0.1", "[::1]:80", "LOCALHOST"])
async def test_on_loopback_the_machines_own_names_are_served(gateway: GatewayUnderTest, host: str) -> None:
    async with gateway.client(Host=host) as client:
        assert (await client.get("/v1/health")).status_code == 200


@pytest.mark.parametrize("host", ['localhost:80", x="', "localhost/a", "localhost?a", "localhost#a"])
async def test_a_host_that_is_more_than_a_name_is_malformed(gateway: GatewayUnderTest, host: str) -> None:
    async with gateway.client(Host=host) as client:
        answer = await client.post("/mcp", json={})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "MALFORMED_REQUEST")


async def test_no_host_or_two_of_them_are_malformed(gateway: GatewayUnderTest) -> None:
    none = await _raw(gateway, b"GET /v1/health HTTP/1.0\r\n\r\n")
    assert b"MALFORMED_REQUEST" in none
    two = await _raw(gateway, b"GET /v1/health HTTP/1.1\r\nHost: localhost\r\nHost: evil\r\nConnection: close\r\n\r\n")
    assert two.startswith(b"HTTP/1.1 400")


async def test_a_slash_too_many_is_nothing_and_never_a_redirect(gateway: GatewayUnderTest) -> None:
    async with gateway.client() as client:
        for method, path in (("POST", "/v1/memory.get/"), ("GET", "/v1/health/"), ("POST", "/mcp/"), ("GET", "/docs/")):
            answer = await client.request(method, path, follow_redirects=False)
            assert (answer.status_code, _code(answer)) == (404, "UNKNOWN_OP"), path
            assert "location" not in answer.headers


@pytest.mark.parametrize(
    "name", ["Authorization", "X-Loom-Namespace", "X-Loom-Run-Id", "X-Loom-Code-Scope", "Idempotency-Key"]
)
async def test_a_header_that_decides_and_comes_twice_is_malformed(gateway: GatewayUnderTest, name: str) -> None:
    value = f"Bearer {gateway.token()}" if name == "Authorization" else "default"
    async with gateway.client(None) as client:
        for path in ("/v1/memory.get", "/mcp"):
            answer = await client.post(path, json={"key": "k"}, headers=[(name, value), (name.lower(), value)])
            assert (answer.status_code, _code(answer)) == (400, "MALFORMED_REQUEST"), path
            assert answer.json()["error"]["detail"] == {"header": name.lower()}
    assert gateway.services.seen == []


async def test_a_request_whose_end_is_told_in_two_ways_is_refused_and_its_connection_closed(
    gateway: GatewayUnderTest,
) -> None:
    head = f"POST /v1/memory.get HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {gateway.token()}\r\n"
    head += "Content-Type: application/json\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"
    smuggled = b"0\r\n\r\nGET /v1/health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    answered = await _raw(gateway, head.encode() + smuggled)
    assert answered.startswith(b"HTTP/1.1 400")
    assert b"MALFORMED_REQUEST" in answered
    assert answered.count(b"HTTP/1.1 ") == 1
    assert gateway.services.seen == []


@pytest.mark.parametrize("framing", ["Content-Length: 12", "Transfer-Encoding: chunked"])
async def test_a_body_beside_a_wish_for_another_protocol_is_read(gateway: GatewayUnderTest, framing: str) -> None:
    head = f"POST /v1/memory.get HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {gateway.token()}\r\n"
    head += f"Content-Type: application/json\r\n{framing}\r\nConnection: Upgrade, HTTP2-Settings\r\n"
    head += "Upgrade: h2c\r\nHTTP2-Settings: AA\r\n\r\n"
    body = '{"key": "k"}' if "Length" in framing else 'c\r\n{"key": "k"}\r\n0\r\n\r\n'
    next_one = "GET /v1/health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    answered = await _raw(gateway, f"{head}{body}{next_one}".encode())
    assert answered.count(b"HTTP/1.1 200") == 2
    assert [seen.request.key for seen in gateway.services.seen] == ["k"]


async def test_a_wish_for_a_tunnel_is_refused(gateway: GatewayUnderTest) -> None:
    answered = await _raw(gateway, b"CONNECT evil.example:443 HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert answered.startswith(b"HTTP/1.1 400")


async def test_every_answer_carries_the_security_headers_and_a_request_id(gateway: GatewayUnderTest) -> None:
    async with gateway.client() as client:
        for path in ("/v1/health", "/docs", "/openapi.json", "/nothing", "/metrics", "/static/docs.js"):
            answer = await client.get(path)
            assert answer.headers["X-Content-Type-Options"] == "nosniff", path
            assert answer.headers["X-Frame-Options"] == "DENY"
            assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
            assert answer.headers["X-Request-Id"]
            assert "server" not in answer.headers


async def test_a_body_above_the_limit_is_refused_whether_its_length_is_told_or_not(gateway: GatewayUnderTest) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(OVER // 65536 + 1):
            yield b" " * 65536

    async with gateway.client(**{"Content-Type": "application/json"}) as client:
        for path in ("/v1/memory.set", "/mcp"):
            told = await client.post(path, content=b" " * OVER)
            assert (told.status_code, _code(told)) == (413, "PAYLOAD_TOO_LARGE")
            untold = await client.post(path, content=chunks())
            assert (untold.status_code, _code(untold)) == (413, "PAYLOAD_TOO_LARGE")
        within = await client.post("/v1/memory.set", content=b'{"value": "x"}' + b" " * (OVER - 15))
        assert within.status_code == 200
    assert [seen.op for seen in gateway.services.seen] == ["memory.set"]


async def test_a_body_that_is_not_called_json_is_malformed(gateway: GatewayUnderTest) -> None:
    body = b'{"key": "k"}'
    async with gateway.client() as client:
        for kind in ("text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin-1", None):
            headers = {"Content-Type": kind} if kind else {}
            answer = await client.post("/v1/memory.get", content=body, headers=headers)
            assert (answer.status_code, _code(answer)) == (400, "MALFORMED_REQUEST"), kind
        packed = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
        assert _code(await client.post("/v1/memory.get", content=body, headers=packed)) == "MALFORMED_REQUEST"
        good = {"Content-Type": "Application/JSON; charset=UTF-8"}
        assert (await client.post("/v1/memory.get", content=body, headers=good)).status_code == 200
        assert (await client.post("/v1/namespace.list")).status_code == 200


async def test_a_client_that_goes_away_mid_body_leaves_the_gateway_answering(gateway: GatewayUnderTest) -> None:
    host, _, port = gateway.url.removeprefix("http://").rpartition(":")
    head = f"POST /v1/memory.set HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {gateway.token()}\r\n"
    with socket.create_connection((host, int(port))) as raw:
        raw.sendall(f"{head}Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{{".encode())
    async with gateway.client() as client:
        assert (await client.post("/v1/memory.get", json={"key": "k"})).status_code == 200
    assert {seen.op for seen in gateway.services.seen} == {"memory.get"}


async def test_health_names_version_models_checks_and_problems(gateway: GatewayUnderTest) -> None:
    async with gateway.client(None) as client:
        answer = await client.get("/v1/health")
        ready = await client.get("/v1/health/ready")
    health = answer.json()
    assert answer.status_code == 200
    assert health["status"] == "ok"
    assert health["version"] == "0.1.0"
    assert health["checks"]["clickhouse"] == {"ok": True, "required": True}
    assert health["checks"]["memory"]["ok"] is True
    assert health["checks"]["memory"]["required"] is False
    assert health["problems"] == []
    assert health["llm"]["known"] is False
    assert (ready.status_code, ready.json()["ready"]) == (200, True)


async def test_health_is_503_only_when_the_database_is_out(gateway: GatewayUnderTest) -> None:
    gateway.probe.error = BackendUnavailable("The database is away.")
    async with gateway.client(None) as client:
        answer = await client.get("/v1/health")
        ready = await client.get("/v1/health/ready")
    assert answer.status_code == 503
    assert answer.json()["status"] == "down"
    assert [problem["code"] for problem in answer.json()["problems"]] == ["clickhouse_unavailable"]
    assert ready.status_code == 503


async def test_the_api_page_and_all_that_it_needs_come_from_the_gateway(gateway: GatewayUnderTest) -> None:
    async with gateway.client(None) as client:
        page = await client.get("/docs")
        assert page.headers["Content-Type"].startswith("text/html")
        assert "://" not in page.text
        for asset in ("docs.js", "docs.css", "icon.svg"):
            assert f"static/{asset}" in page.text
            assert (await client.get(f"/static/{asset}")).status_code == 200
        assert (await client.get("/static/../http/app.py")).status_code == 404
        assert (await client.get("/static/%2e%2e/http/app.py")).status_code == 404
        assert (await client.get("/")).headers["Location"] == "docs"
        assert (await client.get("/openapi.json")).json()["openapi"].startswith("3.1")
        assert (await client.get("/metrics")).text == "# metrics\n"


async def test_behind_a_prefix_all_routes_answer_whether_the_proxy_takes_it_off_or_not(tmp_path: Path) -> None:
    public = "https://loom.example.org/loom"
    own = {"Host": "loom.example.org", "Origin": "https://loom.example.org"}
    async with running_gateway(tmp_path, public_url=public) as gateway, gateway.client(**own) as client:
        for prefix in ("", "/loom"):
            assert (await client.post(f"{prefix}/v1/memory.get", json={"key": "k"})).status_code == 200
            assert (await client.get(f"{prefix}/docs")).status_code == 200
            assert (await client.get(f"{prefix}/static/docs.js")).status_code == 200
            document = (await client.get(f"{prefix}/openapi.json")).json()
            assert document["servers"] == [{"url": public}]
        assert (await client.get("/loomless/docs")).status_code == 404


async def test_a_listener_for_others_answers_to_any_name_but_to_no_foreign_page(tmp_path: Path) -> None:
    named = {"Host": "loom.internal:8080"}
    async with running_gateway(tmp_path, loopback=False) as gateway, gateway.client(**named) as client:
        assert (await client.post("/v1/memory.get", json={"key": "k"})).status_code == 200
        foreign = await client.post("/v1/memory.get", json={"key": "k"}, headers={"Origin": "https://evil.example"})
        assert foreign.status_code == 403
