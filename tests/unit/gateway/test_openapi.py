"""The OpenAPI document against its own rules, and against the contract."""

from typing import Any

import jsonschema
import pytest

from loom_common.errors import ERRORS
from loom_gateway.contract.catalogue import Catalogue
from loom_gateway.openapi.document import openapi_document

DOCUMENT: Any = openapi_document(Catalogue(), version="1.2.3", server_url="https://loom.example.org/loom/")


def resolved(reference: str) -> Any:
    node = DOCUMENT
    for key in reference.removeprefix("#/").split("/"):
        node = node[key]
    return node


def references(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
        return own + [found for inner in value.values() for found in references(inner)]
    return [found for inner in value for found in references(inner)] if isinstance(value, list) else []


def test_every_public_operation_has_its_path_and_nothing_internal_has() -> None:
    paths = {path for path in DOCUMENT["paths"] if not path.startswith("/v1/health")}
    assert paths == {f"/v1/{name}" for name in (*Catalogue(), *Catalogue().streams)}
    assert not any("embed" in path or "ledger" in path or "status.get" in path for path in paths)


def test_operations_over_lines_say_so_and_what_stands_beside_them() -> None:
    imports = DOCUMENT["paths"]["/v1/memory.import"]["post"]
    assert set(imports["requestBody"]["content"]) == {"application/x-ndjson"}
    asked = {each["name"]: each["schema"]["type"] for each in imports["parameters"] if "name" in each}
    assert asked == {"org": "string", "namespace": "string", "dry_run": "boolean", "if_exists": "string"}
    for name in ("memory.import", "memory.export"):
        answered = DOCUMENT["paths"][f"/v1/{name}"]["post"]["responses"]["200"]
        assert set(answered["content"]) == {"application/x-ndjson"}


def test_every_reference_leads_somewhere() -> None:
    found = references(DOCUMENT)
    assert found
    for reference in found:
        resolved(reference)


def test_every_schema_is_valid_in_the_documents_dialect() -> None:
    assert DOCUMENT["jsonSchemaDialect"] == jsonschema.Draft202012Validator.META_SCHEMA["$id"]
    for schema in DOCUMENT["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)


@pytest.mark.parametrize("name", list(Catalogue()))
def test_an_operation_says_all_that_a_client_needs(name: str) -> None:
    operation = DOCUMENT["paths"][f"/v1/{name}"]["post"]
    assert operation["summary"]
    assert operation["description"]
    request = resolved(operation["requestBody"]["content"]["application/json"]["schema"]["$ref"])
    assert request["additionalProperties"] is False
    assert resolved(operation["responses"]["200"]["content"]["application/json"]["schema"]["$ref"])["type"] == "object"
    assert {"400", "401", "403", "422", "500", "503"} <= operation["responses"].keys()
    assert operation["tags"][0] in {tag["name"] for tag in DOCUMENT["tags"]}


def test_an_idempotency_key_is_offered_where_it_is_kept_and_nowhere_else() -> None:
    reference = {"$ref": "#/components/parameters/IdempotencyKey"}
    offered = {name for name in Catalogue() if reference in DOCUMENT["paths"][f"/v1/{name}"]["post"]["parameters"]}
    assert offered == {
        "memory.set",
        "memory.set_many",
        "memory.set_from_messages",
        "memory.delete",
        "memory.restore",
        "memory.resolve_conflict",
        "knowledge.synthesize",
        "conversation.append",
        "procedure.record_outcome",
        "token.create",
    }


# What is made or asked anew each time: a second token is listed and can be revoked, a second answer stores nothing.
MADE_ANEW = {"token.exchange", "assistant.ask"}


def test_a_write_that_is_sent_again_is_one_write() -> None:
    writes = {name: op.spec for name, op in Catalogue().items() if not op.spec.read_only}
    anew = {name for name, spec in writes.items() if not (spec.idempotent or spec.keeps_idempotency_key)}
    assert anew <= MADE_ANEW


def test_operation_ids_are_unique() -> None:
    ids = [operation["operationId"] for path in DOCUMENT["paths"].values() for operation in path.values()]
    assert len(ids) == len(set(ids))


def test_every_reason_of_the_table_is_described_under_its_status() -> None:
    for row in ERRORS.values():
        assert f"`{row.reason.value}`" in DOCUMENT["components"]["responses"][f"Error{row.http}"]["description"]


def test_the_server_is_where_callers_find_the_gateway() -> None:
    assert DOCUMENT["servers"] == [{"url": "https://loom.example.org/loom"}]
    assert openapi_document(Catalogue(), version="1")["servers"] == [{"url": "/"}]


def test_the_document_keeps_the_shape_that_openapi_asks_for() -> None:
    assert DOCUMENT["openapi"] == "3.1.1"
    assert DOCUMENT["info"].keys() >= {"title", "version", "license"}
    assert DOCUMENT["components"]["securitySchemes"]["bearer"]["scheme"] == "bearer"
    for path in DOCUMENT["paths"].values():
        for operation in path.values():
            for status, response in operation["responses"].items():
                assert status.isdecimal()
                assert "$ref" in response or "description" in response
