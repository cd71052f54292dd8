"""Every table of insights, and what it can hold of a user or a memory."""

from typing import Final

from loom_common.erasure import IN_ORG, HeldTable, shared_tables
from loom_insights.store.agent_events import AGENT_EVENTS

# A call stays, with what it cost; of whom it was and what it named go, the digests of its texts too.
_BEFORE: Final = "occurred_at <= {started_at:DateTime64(3, 'UTC')}"
_OF_USER: Final = f"{IN_ORG} AND user_id = {{user_id:String}} AND {_BEFORE}"
_OF_MEMORIES: Final = f"""{IN_ORG} AND has({{keys:Array(String)}}, args['key']) AND {_BEFORE}"""
_SCRUBBED: Final = """user_id = if(user_id = {user_id:String}, '', user_id),
    args = CAST(map(), 'Map(LowCardinality(String), String)')"""

CENSUS: Final = (
    *shared_tables("insights"),
    HeldTable(AGENT_EVENTS.name, of_user=_OF_USER, of_memories=_OF_MEMORIES, scrubbed=_SCRUBBED),
    HeldTable("analysis_secrets", no_memory_content="one sealed key"),
    HeldTable("analysis_canary", no_memory_content="one row that names nobody"),
)
