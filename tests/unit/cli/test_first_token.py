"""The token of a start, and the end of those before."""

from pathlib import Path
from typing import Any

import pytest

from loom.identity.v1 import identity_pb2 as pb
from loom_cli import first_token
from loom_cli.tokens import all_tokens
from loom_common.errors import BackendUnavailable


class IdentityStandIn:
    """Numbers the tokens that it makes and keeps those that live."""

    def __init__(self) -> None:
        self.live: list[str] = []
        self.made = 0
        self.away = False

    async def CreateNamespace(self, request: pb.CreateNamespaceRequest) -> pb.CreateNamespaceResponse:
        return pb.CreateNamespaceResponse()

    async def CreateToken(self, request: pb.CreateTokenRequest) -> pb.CreateTokenResponse:
        self.made += 1
        self.live.append(f"t{self.made}")
        return pb.CreateTokenResponse(token=f"secret{self.made}", token_id=f"t{self.made}")

    async def RevokeToken(self, request: pb.RevokeTokenRequest) -> pb.RevokeTokenResponse:
        if self.away:
            raise BackendUnavailable("no")
        self.live.remove(request.token_id)
        return pb.RevokeTokenResponse()

    async def ListTokens(self, request: pb.ListTokensRequest) -> pb.ListTokensResponse:
        start = int(request.page_token or 0)
        end = start + 2
        return pb.ListTokensResponse(
            tokens=[pb.TokenInfo(token_id=token_id) for token_id in self.live[start:end]],
            next_page_token=str(end) if end < len(self.live) else "",
        )


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    (tmp_path / "keys").mkdir()
    return tmp_path


async def test_each_start_has_one_token_and_ends_the_one_before(data_dir: Path) -> None:
    identity: Any = IdentityStandIn()  # stands in for a generated stub
    assert await first_token.make(identity, data_dir) == "secret1"
    assert await first_token.make(identity, data_dir) == "secret2"
    assert identity.live == ["t2"]


async def test_a_token_that_could_not_be_ended_is_ended_by_a_later_start(data_dir: Path) -> None:
    identity: Any = IdentityStandIn()
    await first_token.make(identity, data_dir)
    identity.away = True
    for _ in range(2):
        with pytest.raises(BackendUnavailable):
            await first_token.make(identity, data_dir)
    assert identity.live == ["t1", "t2", "t3"]
    identity.away = False
    await first_token.make(identity, data_dir)
    assert identity.live == ["t4"]


async def test_tokens_of_all_pages_are_listed() -> None:
    identity: Any = IdentityStandIn()
    identity.live = [f"t{number}" for number in range(5)]
    found = await all_tokens(identity, "default", ended=False)
    assert [token.token_id for token in found] == identity.live
