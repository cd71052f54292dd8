"""What a namespace holds, what it costs and how Loom works, asked of a running Loom over every transport."""

import json
from collections.abc import Iterator
from typing import Any, Final

import pytest
from support.faults import encoded
from support.transports import Sender, Transport
from support.up import UpProcess, run_loom

from loom_common.ops import all_ops

NAMESPACE: Final = "told"
TRANSPORTS: Final[tuple[Transport, ...]] = ("http", "mcp", "grpc")
# What differs between two calls of one operation, because time passes or the calls themselves are counted.
MOVING: Final = ("read_at", "since", "until", "computed_at", "week_call_count", "callers", "rows", "total")


def made_token(up: UpProcess, *options: str) -> str:
    made = run_loom("token", "create", *options, "--json", "--data-dir", up.data_dir)
    assert made.returncode == 0, made.stderr
    return str(json.loads(made.stdout)["token"])


@pytest.fixture(scope="module")
def viewer(up: UpProcess) -> Iterator[Sender]:
    """A viewer of a namespace with three memories and a document."""
    admin = made_token(up, "--role", "admin", "--org-admin")
    up.call("namespace.create", {"name": NAMESPACE}, token=admin)
    owner = made_token(up, "--role", "admin", "--org-admin", "--namespace", NAMESPACE)
    for key, kind in (("billing:vat", "fact"), ("billing:currency", "fact"), ("ana-drink", "preference")):
        up.call("memory.set", {"key": key, "value": f"told of {key}", "kind": kind, "agent": "bot"}, token=owner)
    up.call("knowledge.ingest", {"documents": [{"source_uri": "told.md", "text": "# Told"}]}, token=owner)
    found = Sender(up, made_token(up, "--role", "viewer", "--namespace", NAMESPACE))
    yield found
    found.close()


def told(sender: Sender, op: str, **body: Any) -> dict[str, Any]:
    """Returns the answer of an operation, which is the same over every transport."""
    spec = all_ops()[op]
    answers = []
    for transport in TRANSPORTS:
        raw = encoded(spec, body) if transport == "grpc" else json.dumps(body).encode()
        answer = sender.send(transport, spec, raw)
        assert answer.reason is None, (op, transport, answer.reason)
        answers.append(answer)
    still = [{name: value for name, value in answer.items() if name not in MOVING} for answer in answers]
    assert still[1:] == [still[0], still[0]], op
    return answers[0]


def test_a_namespace_tells_what_it_holds(viewer: Sender) -> None:
    summary = told(viewer, "namespace.summary")
    assert (summary["totals"]["memory_count"], summary["totals"]["document_count"]) == (3, 1)
    assert summary["kinds"] == [{"name": "fact", "count": 2}, {"name": "preference", "count": 1}]
    assert (summary["guide_version"], summary["hint_count"] >= 0) == (0, True)
    inventory = told(viewer, "namespace.inventory", limit=1)
    groups = {group["by"]: group for group in inventory["groups"]}
    assert groups["key_prefix"]["rows"] == [{"name": "billing", "count": 2}]
    assert (groups["key_prefix"]["name_count"], groups["key_prefix"]["other_count"]) == (2, 1)
    assert groups["document_kind"]["rows"] == [{"name": "markdown", "count": 1}]


def test_a_namespace_tells_what_happened_and_what_would_make_it_better(viewer: Sender) -> None:
    audit = told(viewer, "namespace.audit", days=1)
    assert [(each["agent"], each["new_count"], each["rewritten_count"]) for each in audit["writers"]] == [("bot", 3, 0)]
    assert (audit["conflict_found_count"], audit["shown_memory_count"]) == (0, 0)
    assert isinstance(told(viewer, "namespace.tune")["drafts"], list)
    assert told(viewer, "mentor.brief", agent="bot")["enabled"] is True


def test_costs_are_told_of_the_namespaces_that_a_token_reads(viewer: Sender) -> None:
    costs = told(viewer, "usage.costs", group_by=["namespace", "op"])
    assert costs["namespaces"] == [NAMESPACE]
    assert {row["namespace"] for row in costs["rows"]} <= {NAMESPACE}


def test_help_finds_and_reads_the_documentation(viewer: Sender) -> None:
    found = told(viewer, "help.search", query="memory.conflicts", top_k=3)
    assert found["available"] is True
    hit = found["hits"][0]
    read = told(viewer, "help.get", page=hit["page"], anchor=hit["anchor"])
    assert (read["found"], read["breadcrumb"]) == (True, hit["breadcrumb"])
    assert "memory.conflicts" in read["text"]
    page = told(viewer, "help.get", page="operations/configuration.md")
    assert (len(page["text"]), page["next_offset"], page["outline"][0]["level"]) == (16_000, 16_000, 1)
    assert told(viewer, "mentor.guide")["text"].startswith("# Writing memories well")
