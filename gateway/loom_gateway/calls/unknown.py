"""The ledger's row of a call that names no operation of this build."""

from datetime import datetime
from typing import Final

from loom.insights.v1 import ledger_pb2
from loom_common.auth.claims import NO_NAMESPACE, Claims
from loom_common.errors import Reason
from loom_common.ledger import LedgerEntry
from loom_common.times import format_time
from loom_gateway.calls.caller import Caller

UNKNOWN_OP_NAME: Final = "_unknown"
"""Stands for whatever was named: text of strangers is not a row's to keep, nor a group of the usage's."""


def unknown_op_entry(
    caller: Caller, claims: Claims | None, reason: Reason, recorder: str, started_at: datetime
) -> LedgerEntry:
    """Returns the row."""
    row = ledger_pb2.LedgerRow(
        request_id=caller.request_id,
        recorder=recorder,
        occurred_at=format_time(started_at),
        org=claims.org if claims else NO_NAMESPACE,
        namespace=NO_NAMESPACE,
        op=UNKNOWN_OP_NAME,
        transport=caller.transport.value,
        subject=claims.sub if claims else "",
        consumer=claims.consumer if claims else "",
        status=reason.value,
        refused=True,
    )
    return LedgerEntry(row)
