"""What the OpenAPI document says of the addresses that are no operations."""

from typing import Final

from pydantic import JsonValue

_CHECKS: Final[JsonValue] = {
    "type": "object",
    "description": "Each dependency by name.",
    "additionalProperties": {
        "type": "object",
        "required": ["ok", "required"],
        "properties": {
            "ok": {"type": "boolean", "description": "Whether it answers."},
            "required": {"type": "boolean", "description": "Whether the gateway answers nothing without it."},
            "version": {"type": "string", "description": "Version of the service."},
        },
    },
}

_MODEL: Final[JsonValue] = {
    "type": "object",
    "required": ["known", "real", "model"],
    "properties": {
        "known": {"type": "boolean", "description": "Whether the service could be asked."},
        "real": {"type": "boolean", "description": "False while a fake stands in for the model."},
        "model": {"type": "string", "description": "Name of the model."},
    },
}

HEALTH_SCHEMAS: Final[dict[str, JsonValue]] = {
    "Health": {
        "type": "object",
        "required": ["status", "ready", "version", "embedder", "llm", "checks", "problems"],
        "properties": {
            "status": {"type": "string", "enum": ["ok", "degraded", "down"], "description": "The whole, in a word."},
            "ready": {"type": "boolean", "description": "Whether operations are answered."},
            "version": {"type": "string", "description": "Version of the gateway."},
            "embedder": _MODEL,
            "llm": _MODEL,
            "adaptive_thresholds": {
                "type": "object",
                "description": "The served model's thresholds and where they come from; empty while embedding is away.",
                "additionalProperties": {"type": "string"},
            },
            "analysis": {
                "type": "object",
                "description": "Which boundary keeps statements of insights.query inside their scope, and whether it "
                "holds; empty while insights is away.",
                "additionalProperties": {"type": "string"},
            },
            "checks": _CHECKS,
            "problems": {
                "type": "array",
                "description": "What an operator should know.",
                "items": {
                    "type": "object",
                    "required": ["code", "service", "severity", "message"],
                    "properties": {
                        "code": {"type": "string"},
                        "service": {"type": "string"},
                        "severity": {"type": "string", "enum": ["warning", "error"]},
                        "message": {"type": "string"},
                    },
                },
            },
        },
    },
    "Liveness": {
        "type": "object",
        "required": ["live"],
        "properties": {"live": {"type": "boolean", "const": True, "description": "Always true."}},
    },
    "Readiness": {
        "type": "object",
        "required": ["ready", "checks"],
        "properties": {
            "ready": {"type": "boolean", "description": "Whether operations are answered."},
            "checks": _CHECKS,
        },
    },
}


def _page(operation: str, summary: str, schema: str, unwell: str) -> JsonValue:
    content: JsonValue = {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}}}
    return {
        "get": {
            "operationId": operation,
            "tags": ["health"],
            "summary": summary,
            "security": [],
            "responses": {
                "200": {"description": "All that is needed answers.", "content": content},
                "503": {"description": unwell, "content": content},
            },
        }
    }


HEALTH_PATHS: Final[dict[str, JsonValue]] = {
    "/v1/health": _page(
        "health", "Tells how the gateway and every service fare.", "Health", "The database does not answer."
    ),
    "/v1/health/live": {
        "get": {
            "operationId": "liveness",
            "tags": ["health"],
            "summary": "Tells that the process answers; depends on nothing else.",
            "security": [],
            "responses": {
                "200": {
                    "description": "It does.",
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Liveness"}}},
                }
            },
        }
    },
    "/v1/health/ready": _page(
        "readiness", "Tells whether operations are answered.", "Readiness", "The database or identity does not answer."
    ),
}
