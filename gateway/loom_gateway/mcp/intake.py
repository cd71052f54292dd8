"""Reads the JSON-RPC message of a request as strictly as HTTP bodies are read, before the protocol's own parser does.

That parser takes duplicate keys and half surrogates, or refuses them with a text of its own. A tool call whose
arguments hold such a thing must be answered as a tool's error, so what is wrong with them is kept aside and the call
goes on without arguments, to be refused where it is accounted for.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from pydantic import JsonValue

from loom_common.errors import InvalidArgument, LoomError, MalformedRequest
from loom_gateway.contract.answers import encode
from loom_gateway.contract.strict_json import MAX_DEPTH, half_surrogates, parse_json

# `{"params": {"arguments": ...}}` around the arguments, which may nest as deep as an HTTP body.
_ENVELOPE_DEPTH: Final = 2
CALL: Final = "tools/call"
_CANCELLED: Final = "notifications/cancelled"
# What a request's `_meta` holds where its client wants to hear of it before the answer.
_NOTICES: Final = frozenset({"progressToken", "io.modelcontextprotocol/logLevel"})


class WrongEnvelope(MalformedRequest):
    """The body is JSON and no JSON-RPC message that the protocol has."""

    def __init__(self, message: str, id_: str | int | None = None) -> None:
        super().__init__(message)
        self.id = id_
        """Identifier that the answer carries; None where the message has none to repeat."""


@dataclass(frozen=True, slots=True)
class Intake:
    """One message, safe to hand on."""

    body: bytes
    fault: LoomError | None = None
    """What is wrong with the arguments that were left out of `body`; None where they are all there."""
    method: str = ""
    """Its method; empty for an answer."""
    cancels: str | int | None = None
    """Identifier of the call that it cancels; None where it cancels none."""
    wants_notices: bool = False
    """Whether it asks to be told how its call goes on, by progress or by log messages."""


def take_in(body: bytes) -> Intake:
    """Returns the message to hand on.

    Raises:
        MalformedRequest: The body is not JSON as callers must write it.
        WrongEnvelope: It is no single message of the protocol.
        InvalidArgument: It holds half of a surrogate pair outside of a tool's arguments.
    """
    message = parse_json(body, max_depth=MAX_DEPTH + _ENVELOPE_DEPTH)
    _check_envelope(message)
    known = _known(message)
    if b"\\ud" not in body and b"\\uD" not in body:
        return replace(known, body=body)
    broken = half_surrogates(message)
    if not broken:
        return replace(known, body=body)
    params = message.get("params") if isinstance(message, Mapping) else None
    arguments = params.get("arguments") if isinstance(params, Mapping) else None
    # Elsewhere, as in the arguments of a prompt, nobody would look for the fault.
    called = known.method == CALL and isinstance(arguments, Mapping)
    inside = half_surrogates(arguments) if called else []
    if not isinstance(message, dict) or not isinstance(params, dict) or len(inside) != len(broken):
        raise InvalidArgument("The message holds half of a surrogate pair.", fields=broken[:1])
    named = inside[0]
    fault = InvalidArgument(f"{named.field}: {named.description}.", fields=inside)
    rest: dict[str, JsonValue] = {**message, "params": {**params, "arguments": {}}}
    return replace(known, body=encode(rest), fault=fault)


def _known(message: JsonValue) -> Intake:
    """Returns what the message says of itself, without its body."""
    held = message if isinstance(message, Mapping) else {}
    method, params = held.get("method"), held.get("params")
    params = params if isinstance(params, Mapping) else {}
    meta = params.get("_meta")
    named = params.get("requestId") if method == _CANCELLED else None
    return Intake(
        body=b"",
        method=method if isinstance(method, str) else "",
        cancels=named if isinstance(named, str | int) and not isinstance(named, bool) else None,
        wants_notices=isinstance(meta, Mapping) and not _NOTICES.isdisjoint(meta),
    )


def _check_envelope(message: JsonValue) -> None:
    """Refuses what the protocol's parser would refuse with a text of its own, or take for a notification."""
    if isinstance(message, list):
        raise WrongEnvelope("Batches are not supported; send one message per request.")
    if not isinstance(message, Mapping):
        raise WrongEnvelope("The message must be a JSON object.")
    id_ = message.get("id")
    known = id_ if isinstance(id_, str | int) and not isinstance(id_, bool) else None
    # An error that answers a message which could not be read has no identifier to repeat.
    answers_unread = id_ is None and "error" in message and "method" not in message
    if "id" in message and known is None and not answers_unread:
        raise WrongEnvelope("`id` must be a string or an integer.")
    if message.get("jsonrpc") != "2.0":
        raise WrongEnvelope('`jsonrpc` must be "2.0".', known)
    if "method" in message:
        if not isinstance(message["method"], str):
            raise WrongEnvelope("`method` must be a string.", known)
        if not isinstance(message.get("params", {}), Mapping | None):
            raise WrongEnvelope("`params` must be an object.", known)
    elif "id" not in message or not _is_answer(message):
        raise WrongEnvelope("The message is neither a request nor an answer: it has no `method`.", known)


def _is_answer(message: Mapping[str, JsonValue]) -> bool:
    error = message.get("error")
    if isinstance(error, Mapping):
        code = error.get("code")
        return isinstance(code, int) and not isinstance(code, bool) and isinstance(error.get("message"), str)
    return "error" not in message and isinstance(message.get("result"), Mapping)
