"""The page of the manual that lists every error."""

from loom_common.errors.table import ERRORS

_HEAD = """# Errors

Generated from the table of errors in `loom_common`; do not edit.

Every error has one reason. gRPC sends it as `google.rpc.ErrorInfo` (`domain` is `loom`), HTTP as `error.code`, MCP as
the structured content of a tool error. A client sends an idempotent call again by itself only where the table says so,
after the wait that `Retry-After` (gRPC: `RetryInfo`) names.

| reason | gRPC | HTTP | sent again | when |
| --- | --- | --- | --- | --- |
"""


def errors_markdown() -> str:
    """Returns the manual's page of errors, in the order of the table."""
    rows = (
        f"| `{row.reason}` | `{row.grpc.name}` | {row.http} | {'yes' if row.resend else 'no'} | {row.when} |"
        for row in ERRORS.values()
    )
    return _HEAD + "\n".join(rows) + "\n"
