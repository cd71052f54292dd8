"""One operation called over each transport with bytes as they are, and the reason of its refusal."""

import json
from collections.abc import Mapping
from typing import Any, Literal

import grpc
import httpx
from google.protobuf import json_format, message_factory
from support.up import UpProcess

from loom_common.errors import ERRORS, Reason, from_status_parts
from loom_common.ops import OpSpec, Toolset

Transport = Literal["http", "mcp", "grpc"]
# JSON-RPC's own codes for what no tool ever sees.
_PARSE_ERROR = -32700


class Answer(dict[str, Any]):
    """What a call answered, as JSON; empty when it was refused."""

    reason: Reason | None = None
    """Why it was refused; None where it was answered."""


def toolset_of(spec: OpSpec) -> str | None:
    """Returns a toolset that lists the operation as a tool, or None where none does."""
    if spec.stability == "experimental":
        return "assistant" if Toolset.ASSISTANT in spec.toolsets else None
    if not spec.http_only:
        return "all"
    return next((toolset.value for toolset in Toolset if toolset in spec.toolsets), None)


class Sender:
    """Sends bodies as they are over any transport, with one token."""

    def __init__(self, up: UpProcess, token: str) -> None:
        self._up = up
        self._http = httpx.Client(timeout=60, trust_env=False, headers={"Authorization": f"Bearer {token}"})
        self._metadata = (("authorization", f"Bearer {token}"),)
        options = [("grpc.max_send_message_length", -1)]
        self._channels = {owner: grpc.insecure_channel(up.address(owner), options) for owner in up.run["grpc"]}

    def close(self) -> None:
        """Closes every connection."""
        self._http.close()
        for channel in self._channels.values():
            channel.close()

    def send(self, transport: Transport, spec: OpSpec, body: bytes) -> Answer:
        """Returns the answer of one call; a refusal must have the status that the error table gives its reason."""
        return {"http": self._over_http, "mcp": self._over_mcp, "grpc": self._over_grpc}[transport](spec, body)

    def call(self, spec: OpSpec, body: Mapping[str, Any]) -> Answer:
        """Returns the answer over HTTP, which must be a success."""
        answer = self._over_http(spec, json.dumps(body).encode())
        assert answer.reason is None, (spec.name, answer.reason)
        return answer

    def tool_fields(self, spec: OpSpec) -> frozenset[str]:
        """Returns the arguments that the operation's tool shows."""
        request: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
        listed: list[Any] = []
        while True:
            page = self._mcp(spec, json.dumps(request).encode()).json()["result"]
            listed += page["tools"]
            if not page.get("nextCursor"):
                break
            request["params"]["cursor"] = page["nextCursor"]
        (tool,) = [tool for tool in listed if tool["name"] == spec.mcp_name]
        return frozenset(tool["inputSchema"]["properties"])

    def _over_http(self, spec: OpSpec, body: bytes) -> Answer:
        answer = self._http.post(
            f"{self._up.http_url}/v1/{spec.name}", content=body, headers={"Content-Type": "application/json"}
        )
        if answer.status_code == 200:
            return Answer(answer.json())
        found = _refused(answer.json()["error"])
        assert found.reason is not None
        assert answer.status_code == ERRORS[found.reason].http, answer.text
        return found

    def _over_mcp(self, spec: OpSpec, body: bytes) -> Answer:
        head = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": spec.mcp_name}})
        answer = self._mcp(spec, head[:-2].encode() + b', "arguments": ' + body + b"}}")
        assert answer.status_code < 500, answer.text
        found = answer.json()
        if "error" in found:
            assert found["error"]["code"] == _PARSE_ERROR, answer.text
            return _refused(found["error"]["data"]["error"])
        result = found["result"]
        shown = result["structuredContent"]
        return _refused(shown["error"]) if result.get("isError") else Answer(shown)

    def _mcp(self, spec: OpSpec, content: bytes) -> httpx.Response:
        return self._http.post(
            f"{self._up.http_url}/mcp?toolset={toolset_of(spec)}",
            content=content,
            headers={"Content-Type": "application/json", "Accept": "application/json, text/event-stream"},
        )

    def _over_grpc(self, spec: OpSpec, body: bytes) -> Answer:
        call = self._channels[spec.owner].unary_unary(
            spec.method, request_serializer=bytes, response_deserializer=bytes
        )
        try:
            raw: bytes = call(body, metadata=self._metadata, timeout=60)
        except grpc.RpcError as error:
            return _refused_rpc(error)
        message = message_factory.GetMessageClass(spec.response).FromString(raw)
        shown: dict[str, Any] = json_format.MessageToDict(
            message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
        )
        return Answer(shown)


def reason_of_rpc(error: grpc.RpcError) -> Reason:
    """Returns why a call was refused, whose status must be the one that the error table gives that reason."""
    metadata = [(item.key, item.value) for item in error.trailing_metadata() or ()]
    raised = from_status_parts(error.code(), error.details() or "", metadata)
    assert error.code() is raised.row.grpc
    return raised.reason


def _refused_rpc(error: grpc.RpcError) -> Answer:
    found = Answer()
    found.reason = reason_of_rpc(error)
    return found


def _refused(error: Mapping[str, Any]) -> Answer:
    found = Answer()
    found.reason = Reason(error["code"])
    return found
