"""People who sign in with a link, over the gateway as it is wired."""

import asyncio
import base64
import hashlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
import pytest_asyncio
from support.identity import SECRET, SERVICES
from support.issuer import Issuer, public_jwk, rsa_key, running_issuer

from loom.identity.v1 import access_pb2, access_pb2_grpc, identity_pb2, identity_pb2_grpc, sign_in_pb2_grpc
from loom.identity.v1 import sign_in_pb2 as pb
from loom_cli.console import CommandError
from loom_cli.login import Login, fresh, load
from loom_common.auth.service_credentials import ServiceKey, generate_service_keys
from loom_common.channel import open_channel
from loom_common.clickhouse import ClickHouseSettings
from loom_common.clickhouse.embedded import EmbeddedClickHouse
from loom_common.clickhouse.engine import EmbeddedEngine
from loom_common.errors import AuthInsufficient
from loom_gateway.settings import GatewaySettings
from loom_gateway.wiring import open_service

pytestmark = pytest.mark.asyncio(loop_scope="module")

ANN = "ann@acme.org"
RSA = rsa_key()


@dataclass
class SignIn:
    """A gateway, and the operator who lets people in."""

    url: str
    channel: Any
    foreign: Any

    async def grant(self, subject: str, namespace: str, role: str) -> None:
        request = access_pb2.SetGrantRequest(org="acme", subject=subject, on_namespace=namespace, role=role)
        await access_pb2_grpc.AccessServiceStub(self.channel).SetGrant(request)

    async def link(self, subject: str = ANN) -> str:
        request = pb.CreateSignInLinkRequest(org="acme", subject=subject)
        return (await sign_in_pb2_grpc.SignInServiceStub(self.channel).CreateSignInLink(request)).secret

    def browser(self, cookie: str = "", **headers: str) -> httpx.AsyncClient:
        """A browser on one of our pages; cookies are sent by hand, since the client refuses safe ones over http."""
        held = {"cookie": f"__Host-loom={cookie}"} if cookie else {}
        return httpx.AsyncClient(base_url=self.url, trust_env=False, headers={"origin": self.url, **held, **headers})

    async def signed_in(self, subject: str = ANN) -> tuple[str, dict[str, Any]]:
        """Returns a cookie and what its session tells."""
        async with self.browser() as browser:
            answer = await browser.post("/sign-in/link", json={"secret": await self.link(subject)})
        assert answer.status_code == 200, answer.text
        return cookie_of(answer), answer.json()


def cookie_of(answer: httpx.Response) -> str:
    return answer.headers["set-cookie"].partition("=")[2].partition(";")[0]


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    with running_issuer() as issuer:
        issuer.describe()
        issuer.publish(public_jwk(RSA, "k1"))
        yield issuer


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(
    clickhouse_engine: EmbeddedEngine, tmp_path_factory: pytest.TempPathFactory, issuer: Issuer
) -> AsyncIterator[SignIn]:
    keys: Path = tmp_path_factory.mktemp("sign-in")
    given = {
        "LOOM_JWT_SECRET": SECRET.get_secret_value(),
        "LOOM_SERVICE_KEY": str(keys / "gateway.jwk"),
        "LOOM_SERVICE_JWKS": str(generate_service_keys(keys, SERVICES)),
        "LOOM_GATEWAY_LISTEN": "127.0.0.1:0",
        "LOOM_IDENTITY_LISTEN": "127.0.0.1:0",
        "LOOM_DRAIN_S": "2",
        "LOOM_OIDC_ISSUER": issuer.url,
        "LOOM_OIDC_CLIENT_ID": "loom-app",
        "LOOM_OIDC_CLIENT_SECRET": "the client's own secret",
    }
    ch = EmbeddedClickHouse(clickhouse_engine, "sign_in", ClickHouseSettings(pool_size=4))
    await ch.start()
    async with open_service(GatewaySettings.load(given, environ={}), ch) as running:
        assert await running.wait_ready(10)
        async with (
            open_channel(running.address, ServiceKey.load(keys / "operator.jwk")) as channel,
            open_channel(running.address, ServiceKey.load(keys / "memory.jwk")) as foreign,
        ):
            identity = identity_pb2_grpc.IdentityServiceStub(channel)
            await identity.CreateNamespace(identity_pb2.CreateNamespaceRequest(org="acme", name="a"))
            found = SignIn(f"http://{running.http_address}", channel, foreign)
            await found.grant(ANN, "*", "org_admin")
            yield found
    await ch.close()


def code(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, str(answer.json()["error"]["code"])


async def test_a_link_signs_its_person_in_once_with_a_cookie_that_no_script_and_no_other_site_reads(
    gateway: SignIn,
) -> None:
    secret = await gateway.link()
    async with gateway.browser() as browser:
        first = await browser.post("/sign-in/link", json={"secret": secret})
        again = await browser.post("/sign-in/link", json={"secret": secret})
        made_up = await browser.post("/sign-in/link", json={"secret": "x" * 43})
        form = await browser.post("/sign-in/link", data={"secret": secret})
        page = await browser.get("/sign-in")
        nobody = await browser.get("/session")
    flags = first.headers["set-cookie"].lower()
    assert flags.startswith("__host-loom=")
    for flag in ("httponly", "samesite=lax", "secure", "path=/;"):
        assert flag in flags + ";"
    assert "domain" not in flags
    assert first.headers["cache-control"] == "no-store"
    assert (first.json()["subject"], first.json()["org"], first.json()["method"]) == (ANN, "acme", "link")
    assert [code(answer) for answer in (again, made_up)] == [(401, "UNAUTHENTICATED")] * 2
    assert code(form)[0] == 400
    assert "script-src 'self'" in page.headers["content-security-policy"]
    assert nobody.json() == {"signed_in": False, "providers": [{"name": "127.0.0.1", "url": "sign-in/oidc"}]}
    stub = sign_in_pb2_grpc.SignInServiceStub(gateway.foreign)
    with pytest.raises(AuthInsufficient):
        await stub.CreateSignInLink(pb.CreateSignInLinkRequest(org="acme", subject=ANN))


async def test_a_session_calls_operations_from_our_pages_alone(gateway: SignIn) -> None:
    cookie, told = await gateway.signed_in()
    csrf = {"x-loom-csrf": told["csrf_token"]}
    async with gateway.browser(cookie) as browser:
        assert (await browser.get("/session")).json() == told
        listed = await browser.post("/v1/namespace.list", json={}, headers=csrf)
        assert [space["name"] for space in listed.json()["namespaces"]] == ["a"]
        for headers, origin in (
            ({}, gateway.url),
            ({"x-loom-csrf": "0" * 64}, gateway.url),
            (csrf, "https://evil.example"),
            (csrf, "null"),
        ):
            refused = await browser.post("/v1/namespace.list", json={}, headers={**headers, "origin": origin})
            assert code(refused) == (403, "AUTH_INSUFFICIENT")
        mcp = await browser.post("/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "ping"}, headers=csrf)
        assert mcp.status_code == 401  # programs hold tokens
        bearer = await browser.post("/v1/namespace.list", json={}, headers={**csrf, "authorization": "Bearer a.b.c"})
        assert code(bearer) == (401, "UNAUTHENTICATED")  # a token of its own is never passed over
    for stale in (f"{cookie}x", cookie.partition(".")[0] + ".x", "x.y", "x"):
        async with gateway.browser(stale) as browser:
            answer = await browser.post("/v1/namespace.list", json={}, headers=csrf)
            assert code(answer) == (401, "UNAUTHENTICATED")


async def test_signing_out_ends_the_session_and_every_token_that_was_made_in_it(gateway: SignIn) -> None:
    cookie, told = await gateway.signed_in()
    other, other_told = await gateway.signed_in()
    csrf = {"x-loom-csrf": told["csrf_token"]}
    wish = {"namespaces": [{"namespace": "a", "role": "viewer"}], "ttl_s": 86_400}
    async with gateway.browser(cookie) as browser, httpx.AsyncClient(base_url=gateway.url, trust_env=False) as program:
        made = (await browser.post("/v1/token.create", json=wish, headers=csrf)).json()
        held = {"authorization": f"Bearer {made['token']}"}
        assert (await program.post("/v1/namespace.list", json={}, headers=held)).status_code == 200
        assert code(await browser.post("/sign-out"))[0] == 403
        left = await browser.post("/sign-out", headers=csrf)
        assert (left.status_code, 'loom="";' in left.headers["set-cookie"].lower()) == (200, True)
        ended = await program.post("/v1/namespace.list", json={}, headers=held)
        assert code(ended) == (401, "TOKEN_REVOKED")
        assert code(await browser.post("/v1/namespace.list", json={}, headers=csrf)) == (401, "UNAUTHENTICATED")
        assert (await browser.get("/session")).json()["signed_in"] is False
    async with gateway.browser(other) as browser:  # another session of the same person goes on
        csrf = {"x-loom-csrf": other_told["csrf_token"]}
        assert (await browser.post("/v1/namespace.list", json={}, headers=csrf)).status_code == 200


async def test_what_a_person_is_granted_holds_from_the_next_request_on(gateway: SignIn) -> None:
    await gateway.grant("bob@acme.org", "a", "admin")
    cookie, told = await gateway.signed_in("bob@acme.org")
    csrf = {"x-loom-csrf": told["csrf_token"]}
    async with gateway.browser(cookie) as browser:

        async def role() -> str:
            listed = await browser.post("/v1/namespace.list", json={}, headers=csrf)
            return str(listed.json()["namespaces"][0]["role"])

        assert await role() == "admin"
        await gateway.grant("bob@acme.org", "a", "viewer")
        assert await role() == "viewer"
        await access_pb2_grpc.AccessServiceStub(gateway.channel).SetAccount(
            access_pb2.SetAccountRequest(org="acme", subject="bob@acme.org", disabled=True)
        )
        gone = await browser.post("/v1/namespace.list", json={}, headers=csrf)
        assert code(gone) == (401, "UNAUTHENTICATED")
    async with gateway.browser() as browser:
        answer = await browser.post("/sign-in/link", json={"secret": await gateway.link("bob@acme.org")})
        assert code(answer) == (403, "AUTH_INSUFFICIENT")
        stranger = await browser.post("/sign-in/link", json={"secret": await gateway.link("eve@acme.org")})
        assert code(stranger) == (403, "AUTH_INSUFFICIENT")


async def begin(browser: httpx.AsyncClient, return_to: str = "/docs") -> tuple[dict[str, str], str]:
    """Returns what the provider is asked, and the cookie that waits in the browser."""
    sent = await browser.get("/sign-in/oidc", params={"return_to": return_to})
    assert sent.status_code == 303, sent.text
    asked = parse_qs(urlsplit(sent.headers["location"]).query)
    return {name: value for name, [value] in asked.items()}, sent.headers["set-cookie"].partition(";")[0]


async def end(gateway: SignIn, cookie: str, **query: str) -> httpx.Response:
    # A provider on another site sends the person back: the browser names no origin of ours.
    headers = {"cookie": cookie, "sec-fetch-site": "cross-site"}
    async with httpx.AsyncClient(base_url=gateway.url, trust_env=False, headers=headers) as browser:
        return await browser.get("/sign-in/oidc/callback", params=query)


async def test_a_person_signs_in_with_an_identity_provider(gateway: SignIn, issuer: Issuer) -> None:
    async with gateway.browser() as browser:
        asked, cookie = await begin(browser)
    good = {"iss": issuer.url, "aud": "loom-app", "nonce": asked["nonce"], "sub": "s-1", "name": "Ann"}
    person = {"email": ANN.upper(), "email_verified": True}
    issuer.answer = lambda _form: (200, {"id_token": issuer.sign(RSA, **good, **person), "access_token": "at"})
    answer = await end(gateway, cookie, code="c-1", state=asked["state"])

    assert (answer.status_code, answer.headers["location"]) == (303, "/docs")
    form, authorization = issuer.forms[-1]
    challenge = base64.urlsafe_b64encode(hashlib.sha256(form["code_verifier"].encode()).digest()).rstrip(b"=").decode()
    assert (asked["client_id"], asked["response_type"], asked["scope"]) == ("loom-app", "code", "openid email profile")
    assert (asked["code_challenge"], asked["code_challenge_method"]) == (challenge, "S256")
    assert form["redirect_uri"] == asked["redirect_uri"] == f"{gateway.url}/sign-in/oidc/callback"
    assert base64.b64decode(authorization.partition(" ")[2]).decode() == "loom-app:the client's own secret"
    session = next(value for value in answer.headers.get_list("set-cookie") if value.startswith("__Host-loom="))
    async with gateway.browser(session.partition("=")[2].partition(";")[0]) as browser:
        told = (await browser.get("/session")).json()
    assert (told["subject"], told["org"], told["method"]) == (ANN, "acme", "oidc")
    accounts = await access_pb2_grpc.AccessServiceStub(gateway.channel).ListAccounts(
        access_pb2.ListAccountsRequest(org="acme")
    )
    known = {account.subject: account for account in accounts.accounts}[ANN]
    assert (known.email, known.display_name, known.kind) == (ANN, "Ann", "person")


async def test_no_answer_that_was_not_asked_for_or_proves_nothing_signs_anybody_in(
    gateway: SignIn, issuer: Issuer
) -> None:
    async with gateway.browser() as browser:
        asked, cookie = await begin(browser)
    good: dict[str, Any] = {
        "iss": issuer.url,
        "aud": "loom-app",
        "nonce": asked["nonce"],
        "sub": "s-1",
        "email": ANN,
        "email_verified": True,
    }

    async def answered(query: dict[str, str], held: str, **changed: Any) -> tuple[int, str]:
        token = issuer.sign(changed.pop("key", RSA), **{**good, **changed})
        issuer.answer = lambda _form: (200, {"id_token": token, "access_token": "at"})
        answer = await end(gateway, held, **query)
        assert "__host-loom=" not in answer.headers.get("set-cookie", "").lower()
        return code(answer)

    right = {"code": "c", "state": asked["state"]}
    nobody = (401, "UNAUTHENTICATED")
    for query, held in (
        ({"code": "c", "state": "x"}, cookie),
        ({"code": "c"}, cookie),
        ({"state": asked["state"]}, cookie),
        ({"error": "access_denied", "state": asked["state"]}, cookie),
        (right, ""),
        (right, "__Host-loom-sign-in=v1.AAAA"),
    ):
        assert await answered(query, held) == nobody
    for changed in (
        {"nonce": "another"},
        {"nonce": None},
        {"email_verified": False},
        {"email_verified": "true"},
        {"email": None},
        {"aud": "another"},
        {"aud": ["loom-app", "another"], "azp": "another"},
        {"at_hash": "AAAA"},
        {"iss": "https://evil.example"},
        {"key": rsa_key()},
        {"exp": 1},
    ):
        assert await answered(right, cookie, **changed) == nobody, changed
    assert await answered(right, cookie, email="eve@acme.org") == (403, "AUTH_INSUFFICIENT")
    assert await answered(right, cookie, email="sa:bot") == (403, "AUTH_INSUFFICIENT")


@pytest.mark.parametrize("length", [2_400, 4_000])
async def test_no_way_back_is_too_long_for_the_cookie_that_it_waits_in(gateway: SignIn, length: int) -> None:
    async with gateway.browser() as browser:
        _, cookie = await begin(browser, "/".ljust(length, "x"))
    assert len(cookie) <= 4_096


@pytest.mark.parametrize("elsewhere", ["//evil.example", "https://evil.example", "/\\evil.example", "evil", "/a\tb"])
async def test_nobody_is_led_elsewhere_after_signing_in(gateway: SignIn, issuer: Issuer, elsewhere: str) -> None:
    async with gateway.browser() as browser:
        asked, cookie = await begin(browser, elsewhere)
    good = {"iss": issuer.url, "aud": "loom-app", "nonce": asked["nonce"], "email": ANN, "email_verified": True}
    issuer.answer = lambda _form: (200, {"id_token": issuer.sign(RSA, **good)})
    assert (await end(gateway, cookie, code="c", state=asked["state"])).headers["location"] == "/"


async def test_a_program_without_a_browser_is_let_in_by_a_person_who_types_its_code(
    gateway: SignIn, tmp_path: Path
) -> None:
    cookie, told = await gateway.signed_in()
    csrf = {"x-loom-csrf": told["csrf_token"]}
    grant = {"grant_type": "urn:ietf:params:oauth:grant-type:device_code"}
    async with gateway.browser(cookie) as browser, httpx.AsyncClient(base_url=gateway.url, trust_env=False) as program:

        async def post(path: str, **body: str) -> httpx.Response:
            return await program.post(f"/sign-in/device/{path}", json=body)

        codes = (await post("code")).json()
        other = (await post("code")).json()
        asked = {**grant, "device_code": codes["device_code"]}
        assert (await post("token", **asked)).json() == {"error": "authorization_pending"}
        assert (await post("token", **grant, device_code="v1.AAAA")).json()["error"] == "expired_token"
        assert (await post("token", grant_type="password")).json()["error"] == "unsupported_grant_type"
        typed = {"user_code": codes["user_code"].lower().replace("-", " ")}
        assert code(await post("approve", **typed))[0] == 401  # nobody who is signed in
        assert code(await browser.post("/sign-in/device/approve", json=typed))[0] == 403  # another site's page
        assert code(await browser.post("/sign-in/device/approve", json={"user_code": "AAAA"}, headers=csrf))[0] == 422
        approved = await browser.post("/sign-in/device/approve", json=typed, headers=csrf)
        again = await browser.post("/sign-in/device/approve", json=typed, headers=csrf)
        assert (approved.json(), code(again)[0]) == ({"approved": True}, 422)

        assert (
            (await post("token", **{**grant, "device_code": other["device_code"]})).json()["error"].endswith("pending")
        )
        given = (await post("token", **asked)).json()
        assert (await post("token", **asked)).json()["error"] == "expired_token"
        assert (given["subject"], given["org"], given["token_type"]) == (ANN, "acme", "Bearer")
        held = {"authorization": f"Bearer {given['access_token']}"}
        made = await program.post("/v1/namespace.create", json={"name": "by-login"}, headers=held)
        assert made.json()["created"] is True  # all that the person may
        refresh = {"grant_type": "refresh_token", "refresh_token": given["refresh_token"]}
        assert (await post("token", **refresh)).json()["session"] == given["session"]
        assert (await post("token", grant_type="refresh_token", refresh_token=cookie)).json()[
            "error"
        ] == "invalid_grant"
        async with gateway.browser(given["refresh_token"]) as thief:  # and it is no cookie
            assert (await thief.get("/session")).json()["signed_in"] is False

        path = tmp_path / "login.json"
        kept = Login(gateway.url, ANN, "acme", given["session"], given["refresh_token"], "stale", 0.0)
        fresh_one = await asyncio.to_thread(fresh, kept, path)
        assert load(path) == fresh_one
        assert (path.stat().st_mode & 0o777, fresh_one.access_token != "stale") == (0o600, True)
        left = await program.post("/v1/token.revoke", json={"session": given["session"]}, headers=held)
        assert left.status_code == 200
        assert (await post("token", **refresh)).json()["error"] == "invalid_grant"
        with pytest.raises(CommandError, match="loom login"):
            await asyncio.to_thread(fresh, kept, path)
        assert (await browser.get("/session")).json()["signed_in"] is True  # the person's own session goes on
