"""Sealing anew what was sealed under the secret before the current one: one registry for every kind of sealed row."""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Protocol

from loom_common.sealing import SealBroken, Sealer


@dataclass(frozen=True, slots=True)
class SealedRow:
    """One sealed value as it is stored.

    Attributes:
        name: Name that it was sealed for.
        sealed: The sealed value.
        version: Version of its row.
    """

    name: str
    sealed: str = field(repr=False)
    version: int


class SealedTable(Protocol):
    """Where one kind of sealed rows is kept."""

    async def sealed_rows(self) -> Sequence[SealedRow]:
        """Returns the rows that hold a sealed value, the writes of other replicas among them."""
        ...

    async def put_resealed(self, row: SealedRow, sealed: str) -> bool:
        """Stores the value sealed anew; every other column stays, the time at which it was stored too.

        Returns:
            False where the row is gone or another by now, and nothing was stored.
        """
        ...


@dataclass(frozen=True, slots=True)
class SealedKind:
    """One kind of sealed rows.

    Attributes:
        name: What they are, such as `signing_keys`.
        table: Where they are kept.
        sealer: Seals and opens them.
        alone: Holds off whoever else writes them, while they are sealed anew: a lease, or a hold.
    """

    name: str
    table: SealedTable
    sealer: Sealer
    alone: Callable[[], AbstractAsyncContextManager[object]]


@dataclass(slots=True)
class Resealed:
    """What was done with one kind.

    Attributes:
        name: The kind.
        resealed: Rows that were sealed anew.
        current: Rows that were sealed under the current secret already.
        unopened: Rows that open under neither secret, and stay as they are.
    """

    name: str
    resealed: int = 0
    current: int = 0
    unopened: int = 0


class Reseal:
    """Seals every registered kind anew, in the order in which they were registered.

    What proves the deployment's secret is registered last: it is then sealed under the current one only once everything
    else is.
    """

    def __init__(self, *kinds: SealedKind) -> None:
        self._kinds = list(kinds)

    def register(self, kind: SealedKind) -> None:
        """Adds a kind."""
        self._kinds.append(kind)

    async def run(self) -> list[Resealed]:
        """Seals what the current secret does not open; a run that was cut short is made again.

        Raises:
            Conflict: Another writes a kind and does not come to an end.
            LoomError: The database cannot be read or written.
        """
        return [await self._one(kind) for kind in self._kinds]

    async def _one(self, kind: SealedKind) -> Resealed:
        done = Resealed(kind.name)
        async with kind.alone():
            for row in await kind.table.sealed_rows():
                if kind.sealer.is_current(row.sealed, name=row.name):
                    done.current += 1
                    continue
                try:
                    value = kind.sealer.open(row.sealed, name=row.name)
                except SealBroken:
                    done.unopened += 1
                    continue
                if await kind.table.put_resealed(row, kind.sealer.seal(value, name=row.name)):
                    done.resealed += 1
        return done
