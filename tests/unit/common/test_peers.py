"""What a service opens to know its callers."""

from pathlib import Path

import pytest
from support.grpc import Deployment

from loom_common.peers import open_peers
from loom_common.settings import CommonSettings, SettingsError


def settings(deployment: Deployment, name: str = "memory", **more: object) -> CommonSettings:
    given = {
        "LOOM_SERVICE_KEY": deployment.keys / f"{name}.jwk",
        "LOOM_SERVICE_JWKS": deployment.keys / "services.jwks",
        "LOOM_IDENTITY_ADDR": "127.0.0.1:1",
        "LOOM_INSIGHTS_ADDR": "127.0.0.1:1",
    }
    return CommonSettings(**{**given, **more})  # type: ignore[arg-type]  # by the names of variables


async def test_peers_open_and_close_while_no_peer_answers(deployment: Deployment) -> None:
    async with open_peers(settings(deployment), "memory") as peers:
        assert peers.key.name == "memory"
        assert not peers.deps.identity_ready()
        assert peers.channel("127.0.0.1:2") is peers.channel("127.0.0.1:2")


@pytest.mark.parametrize(
    ("variable", "content"),
    [
        ("LOOM_SERVICE_KEY", None),
        ("LOOM_SERVICE_JWKS", None),
        ("LOOM_SERVICE_KEY", "{}"),
        ("LOOM_SERVICE_JWKS", "not JSON"),
    ],
)
async def test_a_key_file_that_cannot_be_used_names_its_variable(
    deployment: Deployment, tmp_path: Path, variable: str, content: str | None
) -> None:
    path = tmp_path / "file"
    if content is not None:
        path.write_text(content)
    for value in (path, None):
        with pytest.raises(SettingsError) as caught:
            async with open_peers(settings(deployment, **{variable: value}), "memory"):
                pass
        assert variable in str(caught.value)
        assert "\n" not in str(caught.value)


async def test_the_key_of_another_service_is_refused(deployment: Deployment) -> None:
    with pytest.raises(SettingsError) as caught:
        async with open_peers(settings(deployment, "llm"), "memory"):
            pass
    assert "LOOM_SERVICE_KEY" in str(caught.value)
