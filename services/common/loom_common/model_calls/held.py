"""Why a call to a model is not made although nothing failed: what jobs wait for, and spend no attempt on."""

from typing import Final

from loom_common.errors import LoomError, ModelCallDeferred, ModelCallRefused, ModelCallsOff, ModelPolicyUnread

UNREAD: Final = "unread"
"""Key of an error's detail that says what could not be read."""
SWITCH: Final = "switch"
IDENTITY: Final = "identity"

IDENTITY_WAIT_S: Final = 30.0
"""How long a job leaves work whose identity could not be read."""


class SwitchUnread(ModelPolicyUnread):
    """Which organisations' calls are switched off was read too long ago. It holds all of them."""

    def __init__(self) -> None:
        super().__init__(
            "Whether the organisation allows calls to models could not be read lately. Send the call again shortly.",
            detail={UNREAD: SWITCH},
        )


class IdentityUnread(ModelPolicyUnread):
    """Whom the call is for could not be read. It holds this one: it must not go out as someone else's."""

    def __init__(self, *, retry_after_s: float | None = None) -> None:
        super().__init__(
            "Whom the call to the model is for could not be read. Send the call again shortly.",
            detail={UNREAD: IDENTITY},
            retry_after_s=retry_after_s,
        )


HOLDS: Final = (ModelCallsOff, ModelPolicyUnread, ModelCallRefused, ModelCallDeferred)
"""A job leaves the work as it is, with no attempt spent; what is optional during a write lets the write through."""

GROUP_HOLDS: Final = (ModelCallsOff, IdentityUnread, ModelCallRefused, ModelCallDeferred)
"""A job of several groups holds the one and goes on with the others."""


def holds_group(error: LoomError) -> bool:
    """Returns whether an error is one of `GROUP_HOLDS`, also one that came over the wire, where only its reason did."""
    if isinstance(error, ModelPolicyUnread):
        return error.detail.get(UNREAD) == IDENTITY
    return isinstance(error, GROUP_HOLDS)
