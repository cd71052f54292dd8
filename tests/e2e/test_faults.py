"""Every public operation against every fault, over HTTP, MCP and raw gRPC, on a whole Loom with its real store.

The requests are made from the contract's descriptors. Each fault has the documented reason, none is a 500, and nothing
is stored by any of them.
"""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from google.protobuf.descriptor import FieldDescriptor
from support.faults import GOOD, INVALID, SQL_TEXT, encoded, grpc_faults, json_faults, takes_text, text_fields
from support.transports import Answer, Sender, Transport, toolset_of
from support.up import UpProcess, run_loom

from loom_common.errors import Reason
from loom_common.ops import OpRole, OpSpec, public_ops
from loom_gateway.contract.catalogue import Catalogue

# Every service answers this about itself; it takes nothing and is no operation of the gateway's.
OPS = {name: spec for name, spec in public_ops().items() if spec.owner != "common"}
# What comes in pieces is no tool, and taken over HTTP as lines, which tests of their own send.
OFFERED = {"http": {*Catalogue(), "memory.export"}, "mcp": set(Catalogue())}
CASES: list[tuple[OpSpec, Transport]] = [
    (spec, transport)
    for _, spec in sorted(OPS.items())
    for transport in ("http", "mcp", "grpc")
    if transport == "grpc" or (spec.name in OFFERED[transport] and (transport != "mcp" or toolset_of(spec)))
]
every_case = pytest.mark.parametrize(
    ("spec", "transport"), CASES, ids=[f"{spec.name}-{transport}" for spec, transport in CASES]
)
NAMESPACE = "faults"
# Texts that are more than text to an operation: times and places in a list.
PARSED_FIELDS = {
    *("event_time", "expires_at", "valid_at", "invalid_at", "as_of", "asked_at", "since", "until"),
    *("happened_since", "happened_until", "updated_since", "updated_until"),
    *("page_token", "page", "cursor", "jwks", "regex"),
}


def made_token(up: UpProcess, *options: str) -> str:
    made = run_loom("token", "create", "--role", "admin", "--org-admin", *options, "--json", "--data-dir", up.data_dir)
    assert made.returncode == 0, made.stderr
    return str(json.loads(made.stdout)["token"])


@pytest.fixture(scope="module")
def sender(up: UpProcess) -> Iterator[Sender]:
    """Sends as an administrator whose default namespace these tests have to themselves."""
    up.call("namespace.create", {"name": NAMESPACE}, token=made_token(up, "--label", "makes the namespace"))
    found = Sender(up, made_token(up, "--label", "faults", "--namespace", NAMESPACE, "--namespace", "default"))
    for number in range(3):
        for version in range(2):
            found.call(OPS["memory.set"], {"key": f"kept-{number}", "value": f"kept {number} as of {version}"})
    found.call(OPS["knowledge.ingest"], {"documents": [{"source_uri": "kept.md", "text": "# Kept"}]})
    yield found
    found.close()


def stored(sender: Sender) -> dict[str, Any]:
    """Returns everything that the API shows of what is stored: memories, versions, vectors, tokens, namespaces."""
    memories = sender.call(OPS["memory.list"], {"page_size": 500})["memories"]
    places = [{name: memory[name] for name in ("key", "user_id", "session_id")} for memory in memories]
    nearest = sender.call(OPS["memory.search"], {"query": "kept", "search_mode": "vector", "top_k": 100})
    return {
        "memories": memories,
        "versions": [sender.call(OPS["memory.history"], place)["versions"] for place in places],
        "vectors": nearest["candidates_total"],
        "tokens": sender.call(OPS["token.list"], {"include_ended": True, "page_size": 500})["tokens"],
        "namespaces": sender.call(OPS["namespace.list"], {"page_size": 500})["namespaces"],
    }


def reason_of(spec: OpSpec, answer: Answer, *, inside: bool) -> Reason | None:
    """Returns why a call was refused; of a list whose items are answered one by one, why the item was."""
    if answer.reason is None and inside and spec.name == "conversation.append":
        return INVALID if (answer["stored_count"], answer["results"][0]["status"]) == (0, "refused") else None
    if answer.reason is None and inside and spec.name in ("memory.set_many", "knowledge.ingest"):
        if spec.name == "knowledge.ingest":
            assert (answer["stored_count"], answer["refused_count"]) == (0, 1)
        else:
            assert (answer["ok_count"], answer["error_count"]) == (0, 1)
        return Reason(answer["results"][0]["reason"])
    return answer.reason


@pytest.fixture(scope="module")
def untouched(sender: Sender) -> dict[str, Any]:
    """What is stored before the first fault; what any of them stored shows up in the test of the operation."""
    return stored(sender)


@every_case
def test_every_fault_is_refused_with_its_reason_and_stores_nothing(
    sender: Sender, untouched: dict[str, Any], spec: OpSpec, transport: Transport
) -> None:
    if transport == "grpc":
        faults = list(grpc_faults(spec))
        shown = True
    else:
        fields = sender.tool_fields(spec) if transport == "mcp" else None
        faults = list(json_faults(spec, fields))
        shown = fields is None or bool(fields)
    wrong = {}
    for fault in faults:
        reason = reason_of(spec, sender.send(transport, spec, fault.body), inside=fault.inside)
        if reason is not fault.reason:
            wrong[fault.name] = reason
    assert not wrong
    assert len(faults) > (5 if shown else 3)  # a tool without arguments can be sent little that is wrong
    if not spec.read_only:
        assert stored(sender) == untouched


# What operations answer that look a text up, or are for others than the sender; by operation, and by field where one
# field differs.
SQL_ANSWERS = {
    # No regular expression: a parenthesis is closed that none opened.
    "context.fetch pattern": INVALID,
    "procedure.save user_id": INVALID,  # the procedure is nobody's
    "procedure.list page_token": None,  # the name of a procedure, there or not
    "procedure.record_outcome": Reason.NOT_FOUND,
    "insights.query sql": Reason.QUERY_REJECTED,
    "token.revoke": INVALID,  # beside the token: exactly one of three is named
    "token.revoke token_id": Reason.NOT_FOUND,
    "memory.feedback": Reason.NOT_FOUND,
    "memory.restore": Reason.NOT_FOUND,
    "memory.resolve_conflict": Reason.NOT_FOUND,
    "memory.resolve_conflict value": INVALID,  # only a merge has one
    "token.exchange": Reason.UNAUTHENTICATED,
    "org.create": Reason.AUTH_INSUFFICIENT,
    "assistant.ask": Reason.ASSISTANT_UNAVAILABLE,
}


def expected_of_sql(spec: OpSpec, field: FieldDescriptor) -> Reason | None:
    """Returns why a field refuses text that looks like SQL; None where it takes any text."""
    if field.name == "org":
        return Reason.UNAUTHENTICATED if spec.role is OpRole.OPEN else Reason.AUTH_INSUFFICIENT
    if field.name == "namespace":
        return Reason.NOT_FOUND
    # A page of the documentation is a name; one that is none is not found.
    is_known = f"{spec.name} {field.name}" in SQL_ANSWERS
    parsed = field.name in PARSED_FIELDS and spec.name != "help.get" and not is_known
    if parsed or not takes_text(field, SQL_TEXT):
        return INVALID
    return SQL_ANSWERS.get(f"{spec.name} {field.name}", SQL_ANSWERS.get(spec.name))


@every_case
def test_text_that_looks_like_sql_is_only_text(sender: Sender, spec: OpSpec, transport: Transport) -> None:
    shown = sender.tool_fields(spec) if transport == "mcp" else set(spec.request.fields_by_name)
    wrong = {}
    for field in text_fields(spec.request.fields):
        if field.name in shown:
            body = {**GOOD.get(spec.name, {}), field.name: SQL_TEXT}
            raw = encoded(spec, body) if transport == "grpc" else json.dumps(body).encode()
            reason = sender.send(transport, spec, raw).reason
            if reason is not expected_of_sql(spec, field):
                wrong[field.name] = reason
    assert not wrong


def test_text_that_looks_like_sql_is_kept_and_found_as_it_is(sender: Sender) -> None:
    texts = {
        name: f"{name} {SQL_TEXT}" for name in ("key", "value", "user_id", "session_id", "agent", "speaker", "source")
    }
    sender.call(OPS["memory.set"], {**texts, "tags": [SQL_TEXT[:64]]})
    place = {name: texts[name] for name in ("key", "user_id", "session_id")}
    held = sender.call(OPS["memory.get"], place)["memory"]
    assert {name: held[name] for name in texts} == texts
    for mode in ("lexical", "vector"):
        hits = sender.call(
            OPS["memory.search"], {"query": texts["value"], "search_mode": mode, "tags": [SQL_TEXT[:64]]}
        )
        assert [hit["memory"]["key"] for hit in hits["hits"]] == [texts["key"]]
    assert sender.call(OPS["memory.delete"], place)["deleted"]
    kept = {memory["key"] for memory in sender.call(OPS["memory.list"], {"page_size": 500})["memories"]}
    assert {f"kept-{number}" for number in range(3)} <= kept


def test_a_body_of_more_than_four_mebibytes_is_refused_as_too_large(up: UpProcess) -> None:
    answer = httpx.post(
        f"{up.http_url}/v1/memory.set",
        content=json.dumps({"value": "x" * (5 << 20)}).encode(),
        headers={"Authorization": f"Bearer {up.token}", "Content-Type": "application/json"},
        trust_env=False,
    )
    assert answer.status_code == 413
    assert answer.json()["error"]["code"] == "PAYLOAD_TOO_LARGE"
