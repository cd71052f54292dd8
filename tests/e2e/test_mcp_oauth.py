"""An MCP client of another machine against a whole Loom: a person signs in by a link, and says yes."""

import re
import socket
import subprocess
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import httpx2
import pytest
from mcp import Client
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientMetadata
from pydantic import AnyUrl
from support.conformance import suite_command
from support.oauth_client import Kept
from support.up import UpProcess, eventually

from loom.identity.v1 import access_pb2, sign_in_pb2, sign_in_pb2_grpc
from loom_cli.operator import over_access, over_identity

PERSON = "mcp-oauth@example.org"
CALLBACK = "http://127.0.0.1:33418/callback"


@pytest.fixture(scope="module")
def cookie(up: UpProcess) -> str:
    """The session's cookie of a person who may write in one namespace, and has signed in."""
    grant = access_pb2.SetGrantRequest(org="default", subject=PERSON, on_namespace="default", role="writer")
    over_access(up.data_dir, lambda access: access.SetGrant(grant))
    asked = sign_in_pb2.CreateSignInLinkRequest(org="default", subject=PERSON)
    link = over_identity(
        up.data_dir, lambda channel: sign_in_pb2_grpc.SignInServiceStub(channel).CreateSignInLink(asked)
    )
    answer = httpx.post(f"{up.http_url}/sign-in/link", json={"secret": link.secret}, timeout=60, trust_env=False)
    assert answer.status_code == 200, answer.text
    return answer.headers["set-cookie"].partition(";")[0]


def allow(up: UpProcess, cookie: str, url: str) -> dict[str, str]:
    """Does what the person does in a browser; returns what the client is sent back with."""
    with httpx.Client(base_url=up.http_url, headers={"Cookie": cookie}, timeout=60, trust_env=False) as browser:
        page = browser.get(url)
        consent = re.search(r'name="consent" value="([^"]+)"', page.text)
        assert consent is not None, page.text
        assert PERSON in page.text
        form = {"consent": consent[1], "answer": "allow"}
        sent = browser.post("/oauth/authorize", data=form, headers={"Origin": up.http_url})
    assert sent.status_code == 303, sent.text
    return {name: values[0] for name, values in parse_qs(urlsplit(sent.headers["Location"]).query).items()}


def token_of(up: UpProcess, form: dict[str, str]) -> httpx.Response:
    return httpx.post(f"{up.http_url}/oauth/token", data=form, timeout=60, trust_env=False)


async def test_a_client_signs_its_person_in_acts_as_them_goes_on_and_ends(up: UpProcess, cookie: str) -> None:
    kept = Kept()
    answers: list[dict[str, str]] = []

    async def redirected(url: str) -> None:
        answers.append(allow(up, cookie, url))

    async def called_back() -> Any:
        answer = answers[-1]
        return AuthorizationCodeResult(code=answer["code"], state=answer["state"], iss=answer["iss"])

    provider = OAuthClientProvider(
        server_url=f"{up.http_url}/mcp",
        client_metadata=OAuthClientMetadata(client_name="A client", redirect_uris=[AnyUrl(CALLBACK)]),
        storage=kept,
        redirect_handler=redirected,
        callback_handler=called_back,
    )
    async with (
        httpx2.AsyncClient(auth=provider, timeout=60, trust_env=False) as http,
        Client(streamable_http_client(f"{up.http_url}/mcp", http_client=http)) as client,
    ):
        stored = await client.call_tool("memory_set", {"key": "oauth", "value": "written after signing in"})
        assert not stored.is_error, stored
        read: Any = (await client.call_tool("memory_get", {"key": "oauth"})).structured_content
        assert PERSON in read["memory"]["actor"]
        await client.call_tool("memory_delete", {"key": "oauth"})
    assert kept.tokens is not None
    assert kept.client is not None
    access, refresh = kept.tokens.access_token, str(kept.tokens.refresh_token)
    form = {"grant_type": "refresh_token", "refresh_token": refresh, "client_id": str(kept.client.client_id)}
    renewed = token_of(up, form)
    assert renewed.status_code == 200, renewed.text
    assert up.post("memory.list", token=renewed.json()["access_token"]).status_code == 200
    assert up.post("token.create", {"namespaces": []}, token=access).status_code in (403, 422)
    # Shown twice, the refresh token ends all that the client was let do, on every service.
    assert token_of(up, form).json()["error"] == "invalid_grant"
    for token in (access, renewed.json()["access_token"]):
        eventually(lambda token=token: up.post("memory.list", token=token).status_code == 401, 5, "the token ended")  # type: ignore[misc]  # bound now


def test_the_conformance_suite_gets_a_token_as_a_client_would(up: UpProcess, cookie: str) -> None:
    command = suite_command()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    asked = {"client_name": "The suite", "redirect_uris": [f"http://127.0.0.1:{port}/callback"]}
    client = httpx.post(f"{up.http_url}/oauth/register", json=asked, timeout=60, trust_env=False).json()["client_id"]
    where = ["--url", up.http_url, "--resource", f"{up.http_url}/mcp", "--client-id", client, "--port", str(port)]
    with subprocess.Popen([*command, "authorization", *where], stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        told = ""
        for line in run.stdout:
            told += line
            if f"{up.http_url}/oauth/authorize?" in line:
                sent_back = allow(up, cookie, line.strip())
                callback = f"http://127.0.0.1:{port}/callback"
                httpx.get(callback, params=sent_back, timeout=60, trust_env=False)
    assert run.returncode == 0, told
    for scenario in ("authorization-server-metadata-endpoint", "authorization-code-grant"):
        assert f"✓ {scenario}:" in told, told
