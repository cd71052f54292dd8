"""The plane's tables as an erasure sees them: a conversation and its turns go with their user."""

from typing import Final

from loom_common.erasure import IN_ORG, HeldTable

_BEFORE: Final = "<= {started_at:DateTime64(3, 'UTC')}"
_OF_USER: Final = f"{IN_ORG} AND user_id = {{user_id:String}} AND updated_at {_BEFORE}"
# What a user said in a conversation that is nobody's goes too.
_TURNS_OF_USER: Final = f"""{IN_ORG} AND created_at {_BEFORE} AND (user_id = {{user_id:String}}
    OR user_id = '' AND actor IN (concat('human:', {{user_id:String}}), concat('process:', {{user_id:String}})))"""

CENSUS: Final = (
    # The turns' vectors are in `item_vectors`, under the same user.
    HeldTable("conversation_turns", of_user=_TURNS_OF_USER),
    HeldTable("conversations", of_user=_OF_USER),
)
