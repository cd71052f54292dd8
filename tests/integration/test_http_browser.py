"""The gateway in a browser's terms: what a page of another origin may send, and what it may read of the answer."""

from collections.abc import AsyncIterator

import httpx
import pytest
import pytest_asyncio
from support.gateway import GatewayUnderTest, running_gateway

pytestmark = pytest.mark.asyncio(loop_scope="module")

APP = "https://app.example.org"
EVIL = "https://evil.example"
PREFLIGHT = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,content-type"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def closed(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[GatewayUnderTest]:
    """As it is by default: no other page may call."""
    async with running_gateway(tmp_path_factory.mktemp("closed")) as gateway:
        yield gateway


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def opened(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[GatewayUnderTest]:
    """One origin is allowed, and two names beside the public one."""
    async with running_gateway(
        tmp_path_factory.mktemp("opened"),
        loopback=False,
        public_url="https://loom.example.org/loom",
        allowed_origins=(APP,),
        allowed_hosts=("loom.internal", "10.0.0.7:8080"),
    ) as gateway:
        yield gateway


def shared_with(answer: httpx.Response) -> str | None:
    """Returns the origin that a browser lets read the answer."""
    return answer.headers.get("access-control-allow-origin")


def reason(answer: httpx.Response) -> str:
    return str(answer.json()["error"]["detail"]["reason"])


@pytest.mark.parametrize("origin", [EVIL, "null", "http://localhost", APP])
async def test_by_default_no_page_may_ask_call_or_read(closed: GatewayUnderTest, origin: str) -> None:
    seen, rows = len(closed.services.seen), len(closed.ledger.entries)
    async with closed.client(Origin=origin, **{"Sec-Fetch-Site": "cross-site"}) as client:
        asked = await client.options("/v1/memory.set", headers=PREFLIGHT)
        # What a browser sends without asking: a form, or text that is JSON.
        sent = await client.post("/v1/memory.set", content=b'{"value": "x"}', headers={"Content-Type": "text/plain"})
        for answer in (asked, sent, await client.post("/mcp", json={})):
            assert (answer.status_code, reason(answer)) == (403, "foreign_origin")
        read = [await client.get(path) for path in ("/v1/health", "/metrics", "/openapi.json", "/docs")]
        for answer in (asked, sent, *read):
            assert not [name for name in answer.headers if name.startswith("access-control")]
            assert answer.headers["cross-origin-resource-policy"] == "same-origin"
    assert len(closed.services.seen) == seen
    # Each refused call is a row of nobody's; a question is none.
    kinds = [(entry.row.org, entry.row.refused, entry.row.transport) for entry in closed.ledger.entries[rows:]]
    assert kinds == [("_none", True, "http"), ("_none", True, "http"), ("_none", True, "mcp")]


async def test_an_allowed_page_may_ask_call_and_read_and_sends_no_cookie(opened: GatewayUnderTest) -> None:
    async with opened.client(Origin=APP, **{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"}) as client:
        asked = await client.options("/v1/memory.set", headers=PREFLIGHT)
        assert asked.status_code == 204
        assert "POST" in asked.headers["access-control-allow-methods"]
        assert {"authorization", "content-type", "idempotency-key", "x-loom-timeout-ms"} <= set(
            asked.headers["access-control-allow-headers"].split(", ")
        )
        answers = [asked, await client.post("/v1/memory.set", json={"value": "x"}), await client.get("/v1/health")]
        refused = await client.post("/v1/memory.set", json={}, headers={"Authorization": "Bearer x"})
    assert [answer.status_code for answer in (*answers, refused)] == [204, 200, 200, 401]
    for answer in (*answers, refused):
        assert shared_with(answer) == APP
        assert "access-control-allow-credentials" not in answer.headers
        assert "Origin" in answer.headers["vary"]
    assert "X-Request-Id" in answers[1].headers["access-control-expose-headers"]


@pytest.mark.parametrize("origin", [EVIL, "null", f"{APP}.evil.example", "https://app.example.org:444", "*"])
async def test_beside_an_allowed_page_every_other_is_refused(opened: GatewayUnderTest, origin: str) -> None:
    async with opened.client(Origin=origin) as client:
        for answer in (
            await client.options("/v1/memory.set", headers=PREFLIGHT),
            await client.post("/v1/memory.set", json={"value": "x"}),
        ):
            assert (answer.status_code, reason(answer), shared_with(answer)) == (403, "foreign_origin", None)
        read = await client.get("/v1/health")
        assert (read.status_code, shared_with(read)) == (200, None)
        assert "Origin" in read.headers["vary"]


async def test_two_origins_are_nobodys(opened: GatewayUnderTest) -> None:
    async with opened.client() as client:
        answer = await client.post("/v1/memory.set", json={"value": "x"}, headers=[("Origin", APP), ("Origin", EVIL)])
    assert (answer.status_code, shared_with(answer)) == (403, None)


@pytest.mark.parametrize(
    "host",
    ["loom.example.org", "LOOM.internal", "loom.internal:9", "10.0.0.7:8080", "localhost:1", "127.0.0.1", "[::1]:2"],
)
async def test_named_hosts_are_served(opened: GatewayUnderTest, host: str) -> None:
    async with opened.client(Host=host) as client:
        assert (await client.get("/v1/health/live")).status_code == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "10.0.0.7", "10.0.0.7:81", "loom.internal.evil.example", "x@loom.internal"],
)
async def test_a_name_that_was_pointed_at_the_gateway_is_refused(opened: GatewayUnderTest, host: str) -> None:
    """After such a rebinding the page's own origin is the host's, so that the origin alone says nothing."""
    async with opened.client(Host=host, Origin=f"http://{host}", **{"Sec-Fetch-Site": "same-origin"}) as client:
        for answer in (await client.post("/v1/memory.set", json={"value": "x"}), await client.get("/v1/health")):
            assert (answer.status_code, reason(answer)) == (403, "foreign_host")
