"""OAuth of a live gateway: the official client signs a person in, and what is refused on the way."""

import base64
import hashlib
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import httpx2
import pytest
import pytest_asyncio
from mcp import Client
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientMetadata
from pydantic import AnyUrl, SecretStr
from support.gateway import GatewayUnderTest, running_gateway
from support.oauth_client import Kept

from loom_common.auth.claims import NamespaceGrant, Role
from loom_common.clock import SystemClock
from loom_common.errors import BackendUnavailable
from loom_common.ids import new_id
from loom_gateway.http.origins import PublicAddress
from loom_gateway.oauth.people import AccessToken, FakePeople, Grant
from loom_gateway.oauth.routes import OAuth, OAuthDeps
from loom_gateway.oauth.spent import FakeSpent

pytestmark = pytest.mark.asyncio(loop_scope="module")

CALLBACK = "http://127.0.0.1:33418/callback"
VERIFIER = "v" * 64
CHALLENGE = base64.urlsafe_b64encode(hashlib.sha256(VERIFIER.encode()).digest()).rstrip(b"=").decode()
SESSION = {"person": "ana@example.org"}


class PeopleWithTokens(FakePeople):
    """People whose tokens the gateway takes."""

    gateway: GatewayUnderTest
    away = False

    async def token(self, grant: Grant) -> AccessToken:
        if self.away:
            raise BackendUnavailable("Identity is away.")
        await super().token(grant)
        return AccessToken(
            self.gateway.token(
                sub=grant.subject,
                sid=grant.id,
                jti=new_id(),
                namespaces=(NamespaceGrant("team-a", min(grant.role, Role.WRITER)),),
                exp=time.time() + 3600,
            ),
            3600,
        )


class Clock(SystemClock):
    """Time that a test moves on."""

    ahead_s = 0.0

    def now(self) -> Any:
        from datetime import timedelta

        return super().now() + timedelta(seconds=self.ahead_s)


@dataclass
class Signing:
    gateway: GatewayUnderTest
    people: PeopleWithTokens
    clock: Clock


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def signing(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Signing]:
    people, clock = PeopleWithTokens(), Clock()
    oauth = OAuth(OAuthDeps(people, FakeSpent(), SecretStr("s" * 40), None, clock, PublicAddress()))
    folder: Path = tmp_path_factory.mktemp("gateway")
    async with running_gateway(folder, oauth=oauth) as gateway:
        people.gateway = gateway
        yield Signing(gateway, people, clock)


@asynccontextmanager
async def browser(signing: Signing, **cookies: str) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=signing.gateway.url, cookies=cookies, timeout=60, trust_env=False) as client:
        yield client


async def allowed(person: httpx.AsyncClient, url: str, answer: str = "allow") -> httpx.Response:
    """Does what a person does on the page: reads it, and presses a button."""
    page = await person.get(url)
    assert page.status_code == 200, page.text
    consent = re.search(r'name="consent" value="([^"]+)"', page.text)
    assert consent is not None
    origin = f"{page.url.scheme}://{page.url.netloc.decode()}"
    form = {"consent": consent[1], "answer": answer}
    return await person.post("/oauth/authorize", data=form, headers={"Origin": origin})


def answer_of(response: httpx.Response) -> dict[str, str]:
    assert response.status_code == 303, response.text
    return {name: values[0] for name, values in parse_qs(urlsplit(response.headers["Location"]).query).items()}


async def registered(person: httpx.AsyncClient, *, at: str = "/oauth/register", **facts: Any) -> str:
    asked = {"client_name": "A client", "redirect_uris": [CALLBACK], **facts}
    response = await person.post(at, json=asked)
    assert response.status_code == 201, response.text
    return str(response.json()["client_id"])


def authorize_url(client_id: str, **changed: str) -> str:
    query = {
        "response_type": "code",
        "client_id": client_id,
        "redirect_uri": CALLBACK,
        "code_challenge": CHALLENGE,
        "code_challenge_method": "S256",
        "state": "s t/a+te",
        **changed,
    }
    return str(httpx.URL("/oauth/authorize", params={name: value for name, value in query.items() if value}))


async def exchanged(person: httpx.AsyncClient, client_id: str, **fields: str) -> httpx.Response:
    form = {"client_id": client_id, **fields}
    return await person.post("/oauth/token", data=form)


async def code_for(person: httpx.AsyncClient, client_id: str) -> dict[str, str]:
    code = answer_of(await allowed(person, authorize_url(client_id)))["code"]
    return {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": CALLBACK,
        "code_verifier": VERIFIER,
    }


@pytest.mark.parametrize("path", ["/mcp", "/mcp/coding"])
async def test_the_official_client_signs_its_person_in_and_calls_tools_as_them(signing: Signing, path: str) -> None:
    kept, gateway = Kept(), signing.gateway
    gateway.forget()
    answers: list[dict[str, str]] = []

    async def redirected(url: str) -> None:
        async with browser(signing, **SESSION) as person:
            answers.append(answer_of(await allowed(person, url)))

    async def called_back() -> Any:
        from mcp.client.auth import AuthorizationCodeResult

        answer = answers[-1]
        return AuthorizationCodeResult(code=answer["code"], state=answer["state"], iss=answer["iss"])

    provider = OAuthClientProvider(
        server_url=f"{gateway.url}{path}",
        client_metadata=OAuthClientMetadata(client_name="Official client", redirect_uris=[AnyUrl(CALLBACK)]),
        storage=kept,
        redirect_handler=redirected,
        callback_handler=called_back,
    )
    async with (
        httpx2.AsyncClient(auth=provider, timeout=60, trust_env=False) as http,
        Client(streamable_http_client(f"{gateway.url}{path}", http_client=http)) as client,
    ):
        stored = await client.call_tool("memory_set", {"key": "k", "value": "v"})
        assert not stored.is_error
    assert {seen.call.claims.sub for seen in gateway.services.seen if seen.call.claims} == {"ana@example.org"}
    assert kept.tokens is not None
    assert kept.tokens.refresh_token
    assert kept.tokens.scope == "read write"


async def test_a_request_without_a_token_is_told_where_to_get_one(signing: Signing) -> None:
    async with browser(signing) as client:
        for path in ("/mcp", "/mcp/coding"):
            refused = await client.post(path, json={})
            assert refused.status_code == 401
            told = refused.headers["WWW-Authenticate"]
            found = re.search(r'resource_metadata="([^"]+)"', told)
            assert found is not None
            assert told.startswith("Bearer ")
            document = (await client.get(found[1])).json()
            assert document["resource"] == f"{signing.gateway.url}{path}"
            assert document["authorization_servers"] == [signing.gateway.url]
        expired = await client.post("/mcp", json={}, headers={"Authorization": "Bearer nonsense"})
        assert 'error="invalid_token"' in expired.headers["WWW-Authenticate"]
        server = (await client.get("/.well-known/oauth-authorization-server")).json()
        assert (await client.get("/.well-known/openid-configuration")).json() == server
        assert server["issuer"] == signing.gateway.url
        assert server["code_challenge_methods_supported"] == ["S256"]
        assert (await client.get("/.well-known/oauth-protected-resource/v1/memory.get")).status_code == 404
        odd = await client.post("/mcp/%0d%0a%22%E2%82%AC", json={})
        assert odd.status_code == 401
        assert odd.headers["WWW-Authenticate"].count('"') == 6
        # HTTP callers have no browser to be sent to.
        assert "resource_metadata" not in (await client.post("/v1/memory.get", json={})).headers["WWW-Authenticate"]


async def test_behind_a_proxy_every_address_is_the_published_one(signing: Signing, tmp_path: Path) -> None:
    public = PublicAddress("http://127.0.0.1:1/loom")
    oauth = OAuth(OAuthDeps(signing.people, FakeSpent(), SecretStr("s" * 40), None, signing.clock, public))
    async with (
        running_gateway(tmp_path, public_url=public.url, oauth=oauth) as gateway,
        httpx.AsyncClient(base_url=gateway.url, trust_env=False) as client,
    ):
        told = (await client.post("/loom/mcp", json={})).headers["WWW-Authenticate"]
        assert f'resource_metadata="{public.url}/.well-known/oauth-protected-resource/mcp"' in told
        resource = (await client.get("/loom/.well-known/oauth-protected-resource/mcp")).json()
        assert (resource["resource"], resource["authorization_servers"]) == (f"{public.url}/mcp", [public.url])
        server = (await client.get("/loom/.well-known/openid-configuration")).json()
        assert server["token_endpoint"] == f"{public.url}/oauth/token"
        url = authorize_url(await registered(client, at="/loom/oauth/register"))
        assert (await client.get(f"/loom{url}")).headers["Location"].startswith("/loom/sign-in?return_to=")


async def test_nobody_known_signs_in_first_and_comes_back(signing: Signing) -> None:
    async with browser(signing) as stranger:
        url = authorize_url(await registered(stranger))
        sent = await stranger.get(url)
        assert sent.status_code == 303
        assert parse_qs(urlsplit(sent.headers["Location"]).query)["return_to"] == [url]


async def test_the_page_names_client_person_and_what_is_asked_and_no_other_page_may_frame_it(signing: Signing) -> None:
    async with browser(signing, **SESSION) as person:
        client_id = await registered(person, client_name="<b>Evil</b> & Co")
        page = await person.get(authorize_url(client_id, scope="read"))
    assert "<b>Evil" not in page.text
    assert "bEvil/b &amp; Co" in page.text
    assert "ana@example.org" in page.text
    assert "store, change" not in page.text
    policy = page.headers["Content-Security-Policy"]
    assert "frame-ancestors 'none'" in policy
    assert "form-action 'self' http://127.0.0.1:33418" in policy
    assert page.headers["Cache-Control"] == "no-store"


async def test_a_no_is_told_to_the_client(signing: Signing) -> None:
    async with browser(signing, **SESSION) as person:
        answer = answer_of(await allowed(person, authorize_url(await registered(person)), "deny"))
    assert answer == {"error": "access_denied", "state": "s t/a+te", "iss": signing.gateway.url}


async def test_a_code_is_good_once_for_its_client_with_its_secret_and_a_second_use_ends_what_the_first_got(
    signing: Signing,
) -> None:
    async with browser(signing, **SESSION) as person:
        client_id, other = await registered(person), await registered(person, client_name="Other")
        form = await code_for(person, client_id)
        for wrong in (
            {"code_verifier": "w" * 64},
            {"code_verifier": ""},
            {"redirect_uri": "http://127.0.0.1:1/other"},
            {"code": "nonsense"},
            {"client_id": other},
        ):
            refused = await exchanged(person, **{"client_id": client_id, **form, **wrong})
            assert (refused.status_code, refused.json()["error"]) == (400, "invalid_grant"), wrong
        assert (await exchanged(person, "nobody", **form)).json()["error"] == "invalid_client"
        first = await exchanged(person, client_id, **form)
        assert first.status_code == 200, first.text
        assert first.headers["Cache-Control"] == "no-store"
        assert first.json().keys() == {"access_token", "token_type", "expires_in", "refresh_token", "scope"}
        again = await exchanged(person, client_id, **form)
        assert again.json()["error"] == "invalid_grant"
        refreshed = await exchanged(
            person, client_id, grant_type="refresh_token", refresh_token=first.json()["refresh_token"]
        )
        assert refreshed.json()["error"] == "invalid_grant"


async def test_a_refresh_token_is_good_once_and_a_second_use_ends_the_grant(signing: Signing) -> None:
    async with browser(signing, **SESSION) as person:
        client_id = await registered(person)
        first = (await exchanged(person, client_id, **(await code_for(person, client_id)))).json()
        second = await exchanged(person, client_id, grant_type="refresh_token", refresh_token=first["refresh_token"])
        assert second.status_code == 200
        stolen = await exchanged(person, client_id, grant_type="refresh_token", refresh_token=first["refresh_token"])
        assert stolen.json()["error"] == "invalid_grant"
        third = await exchanged(
            person, client_id, grant_type="refresh_token", refresh_token=second.json()["refresh_token"]
        )
        assert third.json()["error"] == "invalid_grant"


@pytest.mark.parametrize("by", ["code", "refresh_token"])
async def test_a_client_that_gets_no_token_now_shows_the_same_thing_again_and_is_no_thief(
    signing: Signing, by: str
) -> None:
    async with browser(signing, **SESSION) as person:
        client_id = await registered(person)
        form = await code_for(person, client_id)
        if by == "refresh_token":
            first = (await exchanged(person, client_id, **form)).json()
            form = {"grant_type": "refresh_token", "refresh_token": first["refresh_token"]}
        signing.people.away = True
        try:
            refused = await exchanged(person, client_id, **form)
        finally:
            signing.people.away = False
        assert (refused.status_code, refused.json()["error"]) == (503, "temporarily_unavailable")
        assert (await exchanged(person, client_id, **form)).status_code == 200


async def test_a_client_ends_its_own_grant(signing: Signing) -> None:
    async with browser(signing, **SESSION) as person:
        client_id, other = await registered(person), await registered(person, client_name="Other")
        got = (await exchanged(person, client_id, **(await code_for(person, client_id)))).json()
        ended = len(signing.people.ended)
        for client in (other, client_id):
            form = {"token": got["refresh_token"], "client_id": client}
            assert (await person.post("/oauth/revoke", data=form)).status_code == 200
            assert len(signing.people.ended) == ended + (client == client_id)


async def test_what_is_old_is_no_longer_good(signing: Signing) -> None:
    async with browser(signing, **SESSION) as person:
        client_id = await registered(person)
        form = await code_for(person, client_id)
        page = await person.get(authorize_url(client_id))
        consent = re.search(r'name="consent" value="([^"]+)"', page.text)
        assert consent is not None
        signing.clock.ahead_s = 3600
        try:
            assert (await exchanged(person, client_id, **form)).json()["error"] == "invalid_grant"
            late = await person.post("/oauth/authorize", data={"consent": consent[1], "answer": "allow"})
            assert late.status_code == 400
        finally:
            signing.clock.ahead_s = 0


async def test_a_page_is_answered_by_the_person_whom_it_asked_alone(signing: Signing) -> None:
    async with browser(signing, **SESSION) as ana, browser(signing, person="bo@example.org") as bo:
        page = await ana.get(authorize_url(await registered(ana)))
        consent = re.search(r'name="consent" value="([^"]+)"', page.text)
        assert consent is not None
        form = {"consent": consent[1], "answer": "allow"}
        assert (await bo.post("/oauth/authorize", data=form)).status_code == 400
        assert (
            await ana.post("/oauth/authorize", data=form, headers={"Origin": "https://evil.example"})
        ).status_code == 403
        assert (await ana.post("/oauth/authorize", data={**form, "consent": "v1.nonsense"})).status_code == 400


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"response_type": "token"}, "unsupported_response_type"),
        ({"code_challenge": ""}, "invalid_request"),
        ({"code_challenge_method": "plain"}, "invalid_request"),
        ({"scope": "everything"}, "invalid_scope"),
        ({"resource": "https://other.example/mcp"}, "invalid_target"),
        ({"scope": "everything", "redirect_uri": "cursor://x/cb"}, "invalid_scope"),
    ],
)
async def test_what_is_asked_wrongly_is_told_to_the_client(
    signing: Signing, changed: dict[str, str], error: str
) -> None:
    async with browser(signing, **SESSION) as person:
        client_id = await registered(person, redirect_uris=[CALLBACK, "cursor://x/cb"])
        answer = answer_of(await person.get(authorize_url(client_id, **changed)))
    assert answer["error"] == error
    assert answer["state"] == "s t/a+te"


async def test_a_state_that_is_none_is_not_sent_on(signing: Signing) -> None:
    async with browser(signing, **SESSION) as person:
        client_id = await registered(person)
        for state in ("é", "a\r\nb", "x" * 2_049):
            answer = answer_of(await person.get(authorize_url(client_id, state=state)))
            assert answer == {**answer, "error": "invalid_request"}
            assert "state" not in answer


async def test_the_largest_client_with_the_longest_state_is_let_in(signing: Signing) -> None:
    uris = [f"https://{number}.example/{'x' * 170}" for number in range(8)]
    async with browser(signing, **SESSION) as person:
        client_id = await registered(person, client_name="\U00020000" * 80, redirect_uris=uris)
        sent = await allowed(person, authorize_url(client_id, redirect_uri=uris[7], state='"' * 2_048))
    assert "code" in answer_of(sent)


async def test_nobody_is_sent_to_a_site_without_having_been_asked(signing: Signing) -> None:
    site = "https://anybodys.example/cb"
    async with browser(signing, **SESSION) as person:
        client_id = await registered(person, redirect_uris=[site])
        response = await person.get(authorize_url(client_id, redirect_uri=site, scope="everything"))
    assert (response.status_code, "location" in response.headers) == (400, False)
    assert "there is no such scope" in response.text


@pytest.mark.parametrize(
    "changed",
    [
        {"client_id": "nobody"},
        {"redirect_uri": "https://evil.example/"},
        {"redirect_uri": "http://127.0.0.1:33418/other"},
        {"redirect_uri": "http://127.0.0.1.evil.example/callback"},
        {"redirect_uri": "http://localhost/callback"},
        {"redirect_uri": "http://evil.example\\@127.0.0.1:33418/callback"},
        {"redirect_uri": "http://x; script-src * y@127.0.0.1:33418/callback"},
        {"redirect_uri": "http://\u20ac@127.0.0.1:33418/callback"},
        {"redirect_uri": "http://127.0.0.1:33418/callback\n"},
    ],
)
async def test_nobody_is_sent_to_an_address_that_was_not_registered(signing: Signing, changed: dict[str, str]) -> None:
    async with browser(signing, **SESSION) as person:
        client_id = await registered(person)
        response = await person.get(authorize_url(**{"client_id": client_id, **changed}))
    assert response.status_code == 400
    assert "location" not in response.headers


async def test_a_program_on_the_persons_machine_is_answered_at_any_port(signing: Signing) -> None:
    async with browser(signing, **SESSION) as person:
        client_id = await registered(person, redirect_uris=[CALLBACK, "http://[::1]:1/callback"])
        for uri, form_to in (
            ("http://127.0.0.1:5/callback", "http://127.0.0.1:5"),
            ("http://[::1]:5/callback", "http:"),
        ):
            page = await person.get(authorize_url(client_id, redirect_uri=uri))
            assert page.status_code == 200
            assert page.headers["Content-Security-Policy"].endswith(f"form-action 'self' {form_to}")


@pytest.mark.parametrize(
    "uris",
    [
        [],
        ["http://example.org/"],
        ["javascript:alert(1)"],
        ["data:text/html,x"],
        ["https://a.example/#fragment"],
        ["https://user@a.example/"],
        ["https://a.example/' 'unsafe-inline"],
        ["nonsense"],
        [5],
        "https://a.example/",
        ["https://a.example/"] * 9,
        ["https://a.example/" + "x" * 600],
    ],
)
async def test_a_client_registers_addresses_that_are_its_own_alone(signing: Signing, uris: Any) -> None:
    async with browser(signing) as client:
        response = await client.post("/oauth/register", json={"redirect_uris": uris})
        assert (response.status_code, response.json()["error"]) == (400, "invalid_redirect_uri")


@pytest.mark.parametrize(
    "uri", ["https://a.example/cb?x=1", "http://localhost/cb", "http://[::1]:7/cb", "cursor://x/cb"]
)
async def test_a_client_may_be_a_site_a_program_or_an_app(signing: Signing, uri: str) -> None:
    async with browser(signing, **SESSION) as person:
        client_id = await registered(person, redirect_uris=[uri])
        sent = await allowed(person, authorize_url(client_id, redirect_uri=uri))
    assert sent.headers["Location"].startswith(uri.partition("?")[0])
    assert "code" in answer_of(sent)


@pytest.mark.parametrize("body", [b"{", b"[]", b"null", b"\xff", b"x" * 40_000, b"[" * 30_000])
async def test_what_is_no_registration_is_refused(signing: Signing, body: bytes) -> None:
    async with browser(signing) as client:
        response = await client.post("/oauth/register", content=body, headers={"Content-Type": "application/json"})
        assert response.status_code == 400


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"grant_type=authorization_code&grant_type=refresh_token", "application/x-www-form-urlencoded"),
        (b"\xff", "application/x-www-form-urlencoded"),
        (b"{}", "application/json"),
        (b"a=" + b"x" * 40_000, "application/x-www-form-urlencoded"),
    ],
)
async def test_what_is_no_form_gets_no_token(signing: Signing, content: bytes, kind: str) -> None:
    async with browser(signing) as client:
        response = await client.post("/oauth/token", content=content, headers={"Content-Type": kind})
        assert (response.status_code, response.json()["error"]) == (400, "invalid_request")
