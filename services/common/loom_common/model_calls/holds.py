"""What jobs do not ask for a while, after a gateway refused an identity or asked it to wait."""

from dataclasses import dataclass
from typing import Final

import cachetools

from loom_common.clock import Clock, SystemClock
from loom_common.errors import LoomError, ModelCallDeferred, ModelCallRefused

# Source: chosen; some 4 MB. Beyond, the hold that was used least lately is forgotten, and its next job asks again.
_MAX_HELD: Final = 8192


@dataclass(frozen=True, slots=True)
class HoldKey:
    """What is held: one identity's calls to one model at one place."""

    identity: tuple[str, ...]
    origin: str
    path: str
    model: str


@dataclass(frozen=True, slots=True)
class _Hold:
    until_s: float
    refused: bool
    status: int
    code: str


class Holds:
    """The holds of one process."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._held: cachetools.LRUCache[HoldKey, _Hold] = cachetools.LRUCache(_MAX_HELD)

    def __bool__(self) -> bool:
        return bool(self._held)

    def hold(self, key: HoldKey, seconds: float, *, refused: bool, status: int, code: str) -> None:
        """Holds `key` for a time; what held it before is forgotten."""
        self._held[key] = _Hold(self._clock.monotonic_s() + seconds, refused, status, code)

    def end(self, key: HoldKey) -> None:
        """Ends a hold, where there is one."""
        self._held.pop(key, None)

    def check(self, key: HoldKey) -> None:
        """Passes where nothing holds `key`.

        Raises:
            ModelCallRefused: Its identity was refused there.
            ModelCallDeferred: It was asked to wait there.
        """
        held = self._held.get(key)
        if held is None:
            return
        left_s = held.until_s - self._clock.monotonic_s()
        if left_s <= 0:
            del self._held[key]
            return
        raise refusal(held.status, held.code, left_s) if held.refused else deferral(held.status, held.code, left_s)


def refusal(status: int, code: str, retry_after_s: float | None = None) -> LoomError:
    """Returns the error for an identity that a gateway refused.

    Args:
        status: What the gateway answered.
        code: Its code, or its type where it gives none.
        retry_after_s: How long a job holds; None for a request.
    """
    return ModelCallRefused(
        f"The inference gateway refused whom the call is for ({status} {code}).",
        detail={"gateway_status": status, "gateway_code": code},
        retry_after_s=retry_after_s,
    )


def deferral(status: int, code: str, retry_after_s: float | None) -> LoomError:
    """Returns the error for an identity that a gateway asked to wait."""
    return ModelCallDeferred(
        f"The inference gateway asked whom the call is for to wait ({status} {code}).",
        detail={"gateway_status": status, "gateway_code": code},
        retry_after_s=retry_after_s,
    )
