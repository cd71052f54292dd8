"""What identity knows of those whom calls are for: claims of trusts, owners of namespaces, addresses of accounts."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Generic, Protocol, TypeVar

import cachetools

from loom_common.auth.directory import Directory
from loom_common.clock import Clock, SystemClock
from loom_common.errors import LoomError
from loom_common.model_calls.held import IdentityUnread

KEPT_S: Final = 60.0
"""Least time between two readings of the same thing."""

# A reading that failed with nothing in hand is tried again soon: meanwhile every call waits for it.
_AGAIN_S: Final = 1.0
_MAX_KEPT: Final = 4096

T = TypeVar("T")
Key = tuple[str, str, str]


class IdentityReads(Protocol):
    """Reads what identity knows."""

    async def trust_claims(self, org: str, trust: str) -> Mapping[str, Sequence[str]]:
        """Returns the claims that a trust requires of its agents, each with the values that it takes.

        Raises:
            LoomError: It cannot be read.
        """
        ...

    async def namespace_owner(self, org: str, namespace: str) -> str:
        """Returns the subject that owns a namespace; empty where it is shared or does not exist.

        Raises:
            LoomError: It cannot be read.
        """
        ...

    async def account_email(self, org: str, subject: str) -> str:
        """Returns a person's address as the directory verified it; empty where there is none.

        Raises:
            LoomError: It cannot be read.
        """
        ...


class DirectoryReads:
    """Reads from the directory."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory

    async def trust_claims(self, org: str, trust: str) -> Mapping[str, Sequence[str]]:
        """See `IdentityReads.trust_claims`."""
        return await self._directory.trust_claims(org, trust)

    async def namespace_owner(self, org: str, namespace: str) -> str:
        """See `IdentityReads.namespace_owner`."""
        info = await self._directory.namespace_info(org, namespace)
        return info.owner if info is not None else ""

    async def account_email(self, org: str, subject: str) -> str:
        """See `IdentityReads.account_email`."""
        return await self._directory.account_email(org, subject)


@dataclass(slots=True)
class FakeReads:
    """What a test says that identity knows."""

    claims: dict[tuple[str, str], dict[str, list[str]]] = field(default_factory=dict)
    """Claims by organisation and trust."""
    owners: dict[tuple[str, str], str] = field(default_factory=dict)
    """Owners by organisation and namespace."""
    emails: dict[tuple[str, str], str] = field(default_factory=dict)
    """Addresses by organisation and subject."""
    failure: LoomError | None = None
    """What every reading raises."""
    asked: list[Key] = field(default_factory=list)
    """Readings so far."""

    async def trust_claims(self, org: str, trust: str) -> Mapping[str, Sequence[str]]:
        """See `IdentityReads.trust_claims`."""
        self._ask("trust", org, trust)
        return self.claims.get((org, trust), {})

    async def namespace_owner(self, org: str, namespace: str) -> str:
        """See `IdentityReads.namespace_owner`."""
        self._ask("owner", org, namespace)
        return self.owners.get((org, namespace), "")

    async def account_email(self, org: str, subject: str) -> str:
        """See `IdentityReads.account_email`."""
        self._ask("email", org, subject)
        return self.emails.get((org, subject), "")

    def _ask(self, what: str, org: str, name: str) -> None:
        self.asked.append((what, org, name))
        if self.failure is not None:
            raise self.failure


class CachedReads:
    """Reads each thing at most once a minute; where a reading fails, what is in hand is served, however old.

    With nothing in hand it raises `IdentityUnread`.
    """

    def __init__(self, reads: IdentityReads, clock: Clock | None = None) -> None:
        self._reads = reads
        clock = clock or SystemClock()
        self._claims: _Kept[Mapping[str, Sequence[str]]] = _Kept(clock)
        self._names: _Kept[str] = _Kept(clock)

    async def trust_claims(self, org: str, trust: str) -> Mapping[str, Sequence[str]]:
        """See `IdentityReads.trust_claims`."""
        return await self._claims.get(("trust", org, trust), lambda: self._reads.trust_claims(org, trust))

    async def namespace_owner(self, org: str, namespace: str) -> str:
        """See `IdentityReads.namespace_owner`."""
        return await self._names.get(("owner", org, namespace), lambda: self._reads.namespace_owner(org, namespace))

    async def account_email(self, org: str, subject: str) -> str:
        """See `IdentityReads.account_email`."""
        return await self._names.get(("email", org, subject), lambda: self._reads.account_email(org, subject))


@dataclass(slots=True)
class _Copy(Generic[T]):
    next_read_s: float
    value: T | None
    """None: the reading failed, and there was nothing before."""


class _Kept(Generic[T]):
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._copies: cachetools.LRUCache[Key, _Copy[T]] = cachetools.LRUCache(_MAX_KEPT)
        self._locks: dict[Key, asyncio.Lock] = {}

    async def get(self, key: Key, read: Callable[[], Awaitable[T]]) -> T:
        copy = self._copies.get(key)
        if copy is None or self._clock.monotonic_s() >= copy.next_read_s:
            copy = await self._read_once(key, read)
        if copy.value is None:
            raise IdentityUnread
        return copy.value

    async def _read_once(self, key: Key, read: Callable[[], Awaitable[T]]) -> _Copy[T]:
        lock = self._locks.setdefault(key, asyncio.Lock())
        async with lock:
            held = self._copies.get(key)
            if held is not None and self._clock.monotonic_s() < held.next_read_s:
                return held  # somebody else read it while this one waited
            value = held.value if held is not None else None
            with suppress(LoomError):  # what is in hand is served
                value = await read()
            wait_s = _AGAIN_S if value is None else KEPT_S
            copy = self._copies[key] = _Copy(self._clock.monotonic_s() + wait_s, value)
        self._locks.pop(key, None)
        return copy
