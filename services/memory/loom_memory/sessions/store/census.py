"""The tables of sessions as an erasure sees them.

What is of a user's session goes with the user, and so does what the user wrote in a session of nobody. A brief that was
made of a memory goes with that memory.
"""

from typing import Final

from loom_common.erasure import IN_ORG, HeldTable

_ERASED: Final = "{memories:Array(Tuple(String, String, String, String))}"
_BEFORE: Final = "updated_at <= {started_at:DateTime64(3, 'UTC')}"
_OF_USER: Final = f"""{IN_ORG} AND {_BEFORE} AND (user_id = {{user_id:String}}
    OR (user_id = '' AND actor IN (concat('human:', {{user_id:String}}), concat('process:', {{user_id:String}}))))"""
_OF_MEMORIES: Final = f"""{IN_ORG} AND {_BEFORE}
    AND arrayExists(one -> has({_ERASED}, (toString(namespace), one.1, one.2, one.3)), evidence)"""

CENSUS: Final = (
    HeldTable("working_memory", of_user=_OF_USER),
    HeldTable("session_briefs", of_user=_OF_USER, of_memories=_OF_MEMORIES),
    HeldTable("runs", of_user=_OF_USER),
)
