"""What is read of a message before the protocol's own parser sees it."""

import json

import pytest

from loom_common.errors import InvalidArgument
from loom_gateway.mcp.intake import take_in


def message(method: str, **params: object) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()


def test_half_a_surrogate_in_a_tools_arguments_is_kept_aside_for_the_call_to_refuse() -> None:
    taken = take_in(message("tools/call", name="memory_set", arguments={"value": "\ud800"}))
    assert taken.fault is not None
    assert json.loads(taken.body)["params"] == {"name": "memory_set", "arguments": {}}


@pytest.mark.parametrize(
    "body",
    [
        message("prompts/get", name="save_learned", arguments={"about": "\ud800"}),
        message("tools/call", name="\ud800", arguments={"value": "\ud800"}),
        message("resources/read", uri="loom://memory/a/\ud800"),
    ],
)
def test_half_a_surrogate_elsewhere_is_refused_at_once(body: bytes) -> None:
    with pytest.raises(InvalidArgument):
        take_in(body)
