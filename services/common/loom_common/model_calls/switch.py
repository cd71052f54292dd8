"""Which organisations switched their calls to models off, as this process last heard."""

import asyncio
from collections.abc import Collection
from typing import Final, Protocol

from loom_common.clock import Clock, SystemClock
from loom_common.errors import ModelCallsOff
from loom_common.model_calls.held import SwitchUnread

# Source: chosen; identity tells of a reading every two seconds, so that whoever waits longer waits for nothing.
_WAIT_S: Final = 3.0


class OrgSwitch(Protocol):
    """Knows which organisations' calls to models are off."""

    async def require_on(self, org: str) -> None:
        """Passes where the organisation's calls may be made.

        Raises:
            ModelCallsOff: It switched them off.
            SwitchUnread: What is known is too old to say.
        """
        ...

    def off(self) -> frozenset[str]:
        """Returns the organisations that are known to be off, so that jobs leave their rows out of what they select."""
        ...


class SwitchCopy:
    """What was read, and when; kept up to date by whoever hears of it."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._read_at_s: float | None = None
        self._news = asyncio.Event()
        self.off: frozenset[str] = frozenset()
        """Organisations whose calls are off."""

    def replace(self, off: Collection[str], age_s: float) -> None:
        """Forgets what was known; `age_s` is how long ago it was read."""
        self.off = frozenset(off)
        self._heard(age_s)

    def change(self, off: Collection[str], on: Collection[str], age_s: float) -> None:
        """Takes what has changed; `age_s` is how long ago all of it was read."""
        self.off = (self.off | frozenset(off)) - frozenset(on)
        self._heard(age_s)

    def age_s(self) -> float:
        """Returns how long ago it was read; infinite where it never was. Units: seconds."""
        return float("inf") if self._read_at_s is None else self._clock.monotonic_s() - self._read_at_s

    async def wait_news(self) -> None:
        """Waits until something is heard."""
        await self._news.wait()

    def _heard(self, age_s: float) -> None:
        self._read_at_s = self._clock.monotonic_s() - age_s
        self._news.set()
        self._news = asyncio.Event()


class FollowedSwitch:
    """The switch as a process follows it.

    Args:
        copy: What was heard.
        max_stale_s: Age from which on it says nothing any more.
        wait_s: How long a call waits for news where the copy is too old.
    """

    def __init__(self, copy: SwitchCopy, max_stale_s: float, *, wait_s: float = _WAIT_S) -> None:
        self._copy = copy
        self._max_stale_s = max_stale_s
        self._wait_s = wait_s

    async def require_on(self, org: str) -> None:
        """See `OrgSwitch.require_on`."""
        if self._copy.age_s() > self._max_stale_s:
            await self._wait_fresh()
        if org in self._copy.off:
            raise calls_off(org)

    def off(self) -> frozenset[str]:
        """See `OrgSwitch.off`."""
        return self._copy.off

    async def _wait_fresh(self) -> None:
        try:
            async with asyncio.timeout(self._wait_s):
                while self._copy.age_s() > self._max_stale_s:
                    await self._copy.wait_news()
        except TimeoutError:
            raise SwitchUnread from None


class FakeSwitch:
    """A switch that tests turn."""

    def __init__(self, *off: str) -> None:
        self.orgs_off = set(off)
        self.unread = False
        """Whether it says that it does not know."""

    async def require_on(self, org: str) -> None:
        """See `OrgSwitch.require_on`."""
        if self.unread:
            raise SwitchUnread
        if org in self.orgs_off:
            raise calls_off(org)

    def off(self) -> frozenset[str]:
        """See `OrgSwitch.off`."""
        return frozenset(self.orgs_off)


def calls_off(org: str) -> ModelCallsOff:
    """Returns the refusal of an organisation that switched its calls off."""
    return ModelCallsOff(
        f"The organisation {org!r} has switched its calls to models off. An administrator of it can switch them on "
        "again with org.set_model_calls.",
        detail={"org": org},
    )
