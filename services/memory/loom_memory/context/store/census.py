"""The table of parked texts as an erasure sees it.

A text goes with the user of the token that parked it, and with whoever parked it.
"""

from typing import Final

from loom_common.erasure import IN_ORG, HeldTable

_OF_USER: Final = f"""{IN_ORG} AND created_at <= {{started_at:DateTime64(3, 'UTC')}} AND (user_id = {{user_id:String}}
    OR actor IN (concat('human:', {{user_id:String}}), concat('process:', {{user_id:String}})))"""

CENSUS: Final = (HeldTable("context_blobs", of_user=_OF_USER),)
