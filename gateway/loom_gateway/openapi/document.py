"""The OpenAPI 3.1 document of the gateway, made from the contract and the table of errors."""

from collections.abc import Iterable
from typing import Final

from pydantic import JsonValue

from loom_common.comments import contract_comments
from loom_common.errors import ERRORS
from loom_common.ops import OpRole, OpSpec, Stability
from loom_gateway.contract.catalogue import LINES, Catalogue
from loom_gateway.contract.schema import request_schema, response_schema
from loom_gateway.openapi.examples import example_of
from loom_gateway.openapi.health import HEALTH_PATHS, HEALTH_SCHEMAS

Object = dict[str, JsonValue]

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"

_INTRODUCTION: Final = (
    "Loom stores memories for agents and finds them again. Every operation is one POST with a JSON object; its answer "
    "is a JSON object. Send a token as `Authorization: Bearer <token>`. Requests are read strictly: an unknown field, "
    "a wrong type or a key that stands twice is refused. Answers may get more fields in later versions."
)

# What any operation may answer, whatever it does.
_ALWAYS_ANSWERED: Final = (400, 401, 403, 404, 409, 413, 422, 429, 500, 503, 504)
_ROLE_WORDS: Final = {
    OpRole.VIEWER: "viewer on the namespace",
    OpRole.WRITER: "writer on the namespace",
    OpRole.ADMIN: "admin on the namespace",
    OpRole.ORG_ADMIN: "administrator of the organisation",
    OpRole.NONE: "any valid token",
    OpRole.OPEN: "no token",
}


def openapi_document(catalogue: Catalogue, *, version: str, server_url: str = "") -> Object:
    """Returns the document.

    Args:
        catalogue: Operations to describe.
        version: Version of the build.
        server_url: Where callers find the gateway; empty for the address that the document came from.
    """
    specs = [op.spec for op in (*catalogue.values(), *catalogue.streams.values())]
    paths: Object = {f"/v1/{spec.name}": {"post": _operation(spec)} for spec in specs}
    return {
        "openapi": "3.1.1",
        "jsonSchemaDialect": DIALECT,
        "info": {
            "title": "Loom",
            "version": version,
            "description": _INTRODUCTION,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": server_url.rstrip("/") or "/"}],
        "security": [{"bearer": []}],
        "tags": _tags(specs),
        "paths": {**paths, **HEALTH_PATHS},
        "components": {
            "securitySchemes": {
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "bearerFormat": "JWT",
                    "description": "A token of this deployment; `loom token create` makes one.",
                }
            },
            "parameters": _PARAMETERS,
            "schemas": {**_schemas(specs), **HEALTH_SCHEMAS, "Error": _ERROR},
            "responses": {f"Error{status}": _error_response(status) for status in _statuses()},
        },
    }


def _tags(specs: Iterable[OpSpec]) -> list[JsonValue]:
    services = {_tag(spec): spec.service for spec in specs}
    comments = contract_comments()
    return [{"name": tag, "description": comments.of(service)} for tag, service in services.items()]


def _tag(spec: OpSpec) -> str:
    return spec.name.partition(".")[0]


def _operation(spec: OpSpec) -> Object:
    responses: Object = {
        "200": {
            "description": contract_comments().of(spec.response.full_name) or "The answer.",
            "headers": {"X-Request-Id": {"schema": {"type": "string"}, "description": "Identifier in the logs."}},
            "content": _content(spec),
        }
    }
    responses.update({str(status): {"$ref": f"#/components/responses/Error{status}"} for status in _answered(spec)})
    parameters = ["Namespace", "RunId", "RequestId", "TimeoutMs"]
    parameters += ["IdempotencyKey"] if spec.keeps_idempotency_key else []
    shared: list[JsonValue] = [{"$ref": f"#/components/parameters/{name}"} for name in parameters]
    return {
        "operationId": spec.name.replace(".", "_"),
        "tags": [_tag(spec)],
        "summary": spec.summary,
        "description": f"{spec.description}\n\nNeeds: {_ROLE_WORDS[spec.role]}.",
        "parameters": [*shared, *_in_query(spec)],
        "requestBody": {
            "required": bool(request_schema(spec.request).get("required")),
            "content": _asked(spec),
        },
        "responses": responses,
        **({"security": []} if spec.role is OpRole.OPEN else {}),
        "x-loom-read-only": spec.read_only,
        "x-loom-idempotent": spec.idempotent,
        "x-loom-stability": spec.stability.value if spec.stability else Stability.STABLE.value,
    }


def _in_query(spec: OpSpec) -> list[Object]:
    """Returns what an operation that takes lines is told beside them."""
    if not spec.request_streaming:
        return []
    comments = contract_comments()
    return [
        {
            "name": field.name,
            "in": "query",
            "required": False,
            "description": comments.of(field.full_name),
            "schema": {"type": "boolean" if field.type == field.TYPE_BOOL else "string"},
        }
        for field in spec.request.fields
        if field.name != LINES
    ]


def _asked(spec: OpSpec) -> Object:
    if spec.request_streaming:
        told = "Lines of JSON, as the operation describes them."
        return {"application/x-ndjson": {"schema": {"type": "string", "description": told}}}
    schema = _reference(_schema_name(spec, spec.request.name))
    return {"application/json": {"schema": schema, "example": example_of(spec)}}


def _content(spec: OpSpec) -> Object:
    reference = _reference(_schema_name(spec, spec.response.name))
    if not spec.response_streaming:
        return {"application/json": {"schema": reference}}
    if spec.request_streaming or LINES in spec.response.fields_by_name:
        lines = "Lines of JSON, as the operation describes them. One that fails on its way ends with a line "
        return {"application/x-ndjson": {"schema": {"type": "string", "description": f"{lines}`{{error: {{...}}}}`."}}}
    told = (
        "Server-sent events without names: each `data:` holds one message of the schema "
        f"`{_schema_name(spec, spec.response.name)}`, the last one `[DONE]`. One that fails on its way ends with "
        '`{"error": {...}}` instead.'
    )
    return {"text/event-stream": {"schema": {"type": "string", "description": told}}}


def _answered(spec: OpSpec) -> list[int]:
    """Returns the HTTP statuses of errors: those of every operation, and those that its comment names."""
    named = {row.http for row in ERRORS.values() if row.reason.value in spec.description}
    return sorted(named.union(_ALWAYS_ANSWERED))


def _statuses() -> list[int]:
    return sorted({row.http for row in ERRORS.values()})


def _schemas(specs: Iterable[OpSpec]) -> Object:
    found: Object = {}
    for spec in specs:
        found[_schema_name(spec, spec.request.name)] = request_schema(spec.request)
        found[_schema_name(spec, spec.response.name)] = response_schema(spec.response)
    return found


def _schema_name(spec: OpSpec, message: str) -> str:
    # Two services may each have a message of one name.
    return f"{spec.owner}.{message}"


def _reference(name: str) -> Object:
    return {"$ref": f"#/components/schemas/{name}"}


def _error_response(status: int) -> Object:
    rows = [row for row in ERRORS.values() if row.http == status]
    told = "\n".join(f"- `{row.reason.value}`: {row.when}" for row in rows)
    response: Object = {
        "description": told,
        "content": {"application/json": {"schema": _reference("Error")}},
    }
    if status in (429, 503):
        response["headers"] = {
            "Retry-After": {"schema": {"type": "integer"}, "description": "Seconds to wait before the call is resent."}
        }
    return response


_ERROR: Final[Object] = {
    "type": "object",
    "description": "Why a call was not answered; the same on every transport.",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "message", "status", "detail", "request_id"],
            "properties": {
                "code": {
                    "type": "string",
                    "description": "Reason, for programs. More may come in later versions.",
                    "examples": ["INVALID_ARGUMENT"],
                },
                "message": {"type": "string", "description": "What is wrong and what to do, for people."},
                "status": {"type": "integer", "description": "HTTP status."},
                "detail": {
                    "type": "object",
                    "description": "Facts, for programs.",
                    "properties": {
                        "fields": {
                            "type": "array",
                            "description": "Fields that are wrong.",
                            "items": {
                                "type": "object",
                                "required": ["field", "description"],
                                "properties": {"field": {"type": "string"}, "description": {"type": "string"}},
                            },
                        }
                    },
                },
                "request_id": {"type": "string", "description": "Identifier of the call in the logs."},
            },
        }
    },
}


# What metadata carries, and what is no space at an end, which HTTP takes away.
_PRINTABLE: Final = r"^([!-~]([ -~]*[!-~])?)?$"


def _header(name: str, description: str, limit: int, pattern: str = _PRINTABLE) -> Object:
    return {
        "name": name,
        "in": "header",
        "required": False,
        "description": description,
        "schema": {"type": "string", "maxLength": limit, "pattern": pattern},
    }


_PARAMETERS: Final[Object] = {
    "Namespace": _header("X-Loom-Namespace", "Namespace, where the body names none.", 128),
    "RunId": _header("X-Loom-Run-Id", "Run that the call belongs to, for the ledger.", 256),
    "RequestId": {
        **_header(
            "X-Request-Id",
            "Identifier of the call in the logs, 1 to 128 of `A-Za-z0-9._:-`. Default, and in place of any other: a "
            "new one is made.",
            128,
        ),
        # Never refused, so that a proxy's way of naming requests breaks no call.
        "schema": {"type": "string"},
    },
    "TimeoutMs": _header(
        "X-Loom-Timeout-Ms",
        "How long the answer is waited for, in milliseconds; no longer than the deployment allows. What is not done by "
        "then is DEADLINE_EXCEEDED.",
        9,
        "^[1-9][0-9]*$",
    ),
    "IdempotencyKey": _header(
        "Idempotency-Key", "Makes a repeated write one write: the same key and body get the first answer.", 256
    ),
}
