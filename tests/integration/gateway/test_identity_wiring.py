"""The gateway as it is wired: identity over gRPC, operations over HTTP, one start and one stop."""

import socket
import time
from pathlib import Path

import httpx
import pytest
from support.identity import SECRET, SERVICES, token_request

from loom.identity.v1 import directory_pb2, directory_pb2_grpc, identity_pb2_grpc
from loom_common.auth.service_credentials import ServiceKey, generate_service_keys
from loom_common.channel import open_channel
from loom_common.clickhouse import ClickHouse
from loom_common.server import ListenError
from loom_common.settings import SettingsError
from loom_gateway.settings import GatewaySettings
from loom_gateway.wiring import open_service


def settings(keys: Path, **more: str) -> GatewaySettings:
    given = {
        "LOOM_JWT_SECRET": SECRET.get_secret_value(),
        "LOOM_SERVICE_KEY": str(keys / "gateway.jwk"),
        "LOOM_SERVICE_JWKS": str(generate_service_keys(keys, SERVICES)),
        "LOOM_GATEWAY_LISTEN": "127.0.0.1:0",
        "LOOM_IDENTITY_LISTEN": "127.0.0.1:0",
        "LOOM_DRAIN_S": "20",
        **more,
    }
    return GatewaySettings.load(given, environ={})


async def test_a_token_of_the_operator_calls_an_operation_over_http(clickhouse: ClickHouse, tmp_path: Path) -> None:
    async with open_service(settings(tmp_path), clickhouse) as gateway:
        assert await gateway.wait_ready(10)
        channel = open_channel(gateway.address, ServiceKey.load(tmp_path / "operator.jwk"))
        operator = identity_pb2_grpc.IdentityServiceStub(channel)
        request = token_request("*:viewer", org="acme", subject="sa:bot", org_admin=True)
        token = (await operator.CreateToken(request)).token
        await channel.close(None)
        async with httpx.AsyncClient(base_url=f"http://{gateway.http_address}") as http:
            ready = await http.get("/v1/health/ready")
            bearer = {"authorization": f"Bearer {token}"}
            made = await http.post("/v1/namespace.create", json={"name": "a"}, headers=bearer)
            listed = await http.post("/v1/namespace.list", json={}, headers=bearer)
            child = await http.post(
                "/v1/token.create",
                json={"namespaces": [{"namespace": "a", "role": "viewer"}], "ttl_s": 60},
                headers=bearer,
            )
            ended = await http.post("/v1/token.revoke", json={"token_id": child.json()["token_id"]}, headers=bearer)
            refused = await http.post(
                "/v1/namespace.list", json={}, headers={"authorization": f"Bearer {child.json()['token']}"}
            )
            foreign = await http.post("/v1/namespace.list", json={}, headers={"authorization": "Bearer a.b.c"})

    assert ready.status_code == 200
    assert made.json()["created"] is True
    assert [space["name"] for space in listed.json()["namespaces"]] == ["a"]
    assert ended.status_code == 200
    assert (refused.status_code, refused.json()["error"]["code"]) == (401, "TOKEN_REVOKED")
    assert (foreign.status_code, foreign.json()["error"]["code"]) == (401, "UNAUTHENTICATED")


async def test_a_stop_does_not_wait_for_those_who_follow_revocations(clickhouse: ClickHouse, tmp_path: Path) -> None:
    async with open_service(settings(tmp_path), clickhouse) as gateway:
        channel = open_channel(gateway.address, ServiceKey.load(tmp_path / "memory.jwk"))
        messages = aiter(
            directory_pb2_grpc.DirectoryServiceStub(channel).WatchRevocations(directory_pb2.WatchRevocationsRequest())
        )
        assert (await anext(messages)).snapshot
        stopped_at = time.monotonic()
    took_s = time.monotonic() - stopped_at
    await channel.close(None)

    # The drain is twenty seconds; nothing but the stream was running.
    assert took_s < 10


@pytest.mark.parametrize("variable", ["LOOM_GATEWAY_LISTEN", "LOOM_IDENTITY_LISTEN"])
async def test_a_taken_port_stops_the_start_and_names_the_variable(
    clickhouse: ClickHouse, tmp_path: Path, variable: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ListenError, match=variable):
            async with open_service(settings(tmp_path, **{variable: address}), clickhouse):
                pytest.fail("it must not start")


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"LOOM_OIDC_ISSUER": "https://login.example.org"}, "LOOM_OIDC_CLIENT_ID"),
        ({"LOOM_OIDC_ISSUER": "http://login.example.org", "LOOM_OIDC_CLIENT_ID": "loom"}, "LOOM_OIDC_ISSUER"),
    ],
)
async def test_an_identity_provider_that_cannot_be_asked_stops_the_start(
    clickhouse: ClickHouse, tmp_path: Path, given: dict[str, str], named: str
) -> None:
    with pytest.raises(SettingsError, match=named):
        async with open_service(settings(tmp_path, **given), clickhouse):
            pytest.fail("it must not start")


@pytest.mark.parametrize("given", [{"LOOM_JWT_SECRET": ""}, {"LOOM_JWT_SECRET": "short secret"}])
def test_a_secret_that_is_missing_or_short_stops_the_start_and_is_not_shown(
    tmp_path: Path, given: dict[str, str]
) -> None:
    with pytest.raises(SettingsError, match="LOOM_JWT_SECRET") as refused:
        settings(tmp_path, **given)

    assert "short secret" not in str(refused.value)
