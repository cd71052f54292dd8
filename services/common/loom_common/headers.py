"""Metadata keys that ride along with every call, the same on each side of it."""

from typing import Final

AUTHORIZATION: Final = "authorization"
SERVICE: Final = "x-loom-service"
NAMESPACE: Final = "x-loom-namespace"
RUN_ID: Final = "x-loom-run-id"
REQUEST_ID: Final = "x-request-id"
IDEMPOTENCY_KEY: Final = "idempotency-key"

MAX_METADATA_BYTES: Final = 32 * 1024
"""Most metadata that a call may carry. Source: chosen; a token of 16 KiB, a credential and an attribution fit."""
