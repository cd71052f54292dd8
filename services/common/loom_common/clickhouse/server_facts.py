"""What a database says of itself, for an operator who looks at it."""

from dataclasses import dataclass

from loom_common.clickhouse.protocol import ClickHouse
from loom_common.clickhouse.tagging import tagged

_FACTS = "SELECT version(), toFloat64(now64(3))"


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What it is, and what its clock says."""

    version: str
    now_s: float
    """Units: seconds since 1970-01-01 UTC."""


async def server_facts(ch: ClickHouse) -> ServerFacts:
    """Returns what the database says now.

    Raises:
        BackendUnavailable: It does not answer.
    """
    with tagged("doctor"):
        version, now_s = (await ch.query(_FACTS, {})).rows[0]
    return ServerFacts(str(version), float(now_s))
