"""Writing what a ClickHouse server holds for analyses: one writer at a time, never over a newer build."""

from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

import structlog

from loom_common.analysis import AnalysisTable
from loom_insights.domain.analysis import AnalysisLimits
from loom_insights.domain.server_entities import VERSION, Entities, ServerSecrets

_log = structlog.get_logger(__name__)


class Access(Protocol):
    """What is known of a server's access entities, and how they are written."""

    @property
    def database(self) -> str:
        """Database of the tables."""
        ...

    @property
    def cluster(self) -> str:
        """Cluster that access is written on."""
        ...

    async def prefix(self) -> str:
        """Returns the prefix of settings that the server takes; empty for none."""
        ...

    async def present(self, tables: Iterable[AnalysisTable]) -> tuple[tuple[AnalysisTable, ...], tuple[str, ...]]:
        """Returns the tables as they are there, and what is not there yet."""
        ...

    async def stamp(self) -> str:
        """Returns which set is written; empty for none."""
        ...

    async def has_analyst(self) -> bool:
        """Returns whether the analyst exists."""
        ...

    async def widening(self, tables: Iterable[str]) -> list[str]:
        """Returns policies of others that would show the analyst more."""
        ...

    async def elsewhere(self) -> list[str]:
        """Returns other databases that carry the analyst's policy."""
        ...

    async def write(self, statement: str) -> None:
        """Runs one statement of a write."""
        ...


class SecretStore(Protocol):
    """Keeps the key and the password."""

    async def read(self) -> ServerSecrets | None:
        """Returns them, or None where none were drawn."""
        ...

    async def draw(self) -> ServerSecrets:
        """Draws and stores them."""
        ...


class ProvisioningRefused(Exception):
    """Nothing was written; the text tells an operator why and what to do."""


@dataclass(frozen=True, slots=True)
class Provisioned:
    """What came of a write.

    Attributes:
        written: Whether anything was written.
        stamp: The set that is in force.
        absent: Columns of the allowlist that are not there yet; a later write adds them.
    """

    written: bool
    stamp: str
    absent: tuple[str, ...] = ()


class Provisioning:
    """Writes the entities of one server.

    Args:
        access: The server.
        secrets: Where the key is kept.
        alone: The lease that every writer of the entities takes.
        tables: The allowlist.
        limits: Caps of one statement.
        concurrent: Most statements of the analyst at once.
    """

    def __init__(
        self,
        access: Access,
        secrets: SecretStore,
        alone: Callable[[], AbstractAsyncContextManager[object]],
        tables: Iterable[AnalysisTable],
        limits: AnalysisLimits,
        concurrent: int,
    ) -> None:
        self._access = access
        self._secrets = secrets
        self._alone = alone
        self._tables = tuple(tables)
        self._limits = limits
        self._concurrent = concurrent

    async def write(self, *, repair: bool = False) -> Provisioned:
        """Writes the whole set where it is older than this build's, or in any case where it is not newer.

        Args:
            repair: Whether a set of this very build is written again.

        Raises:
            ProvisioningRefused: The server, its policies or the stored key do not allow it.
            LoomError: The server refused a statement or cannot be reached.
        """
        async with self._alone():
            entities, absent = await self.entities()
            stamp = await self._access.stamp()
            if _number(stamp) > VERSION:
                if repair:
                    raise ProvisioningRefused("a newer build wrote the entities; run the newest build's command")
                return Provisioned(False, stamp)
            if stamp == entities.stamp and not repair:
                return Provisioned(False, stamp, absent)
            await self._require_alone(entities)
            secrets = await self._stored_or_drawn()
            for statement in entities.statements(secrets):
                await self._access.write(statement)
            _log.info("analysis_entities_written", stamp=entities.stamp, absent=list(absent))
            return Provisioned(True, entities.stamp, absent)

    async def statements_to_run(self) -> list[str]:
        """Returns a whole write for somebody else to run; the key is drawn and stored where there is none.

        Raises:
            ProvisioningRefused: As `write`.
        """
        async with self._alone():
            entities, _ = await self.entities()
            if _number(await self._access.stamp()) > VERSION:
                raise ProvisioningRefused("a newer build wrote the entities; run the newest build's command")
            await self._require_alone(entities)
            return entities.statements(await self._stored_or_drawn())

    async def entities(self) -> tuple[Entities, tuple[str, ...]]:
        """Returns the set that this build would write here, and what is not there yet.

        Raises:
            ProvisioningRefused: The server takes no settings of one's own.
        """
        prefix = await self._access.prefix()
        if not prefix:
            raise ProvisioningRefused(
                "the server takes no settings of one's own; name SQL_ in its custom_settings_prefixes"
            )
        tables, absent = await self._access.present(self._tables)
        access = self._access
        entities = Entities(access.database, tables, prefix, self._limits, self._concurrent, access.cluster)
        return entities, absent

    async def _require_alone(self, entities: Entities) -> None:
        widening = await self._access.widening(table.name for table in entities.tables)
        if widening:
            raise ProvisioningRefused(
                f"row policies of others would show the analyst more: {', '.join(widening)}; drop them or make them "
                "restrictive"
            )
        elsewhere = await self._access.elsewhere()
        if elsewhere:
            raise ProvisioningRefused(
                f"the analyst is that of another Loom on this server, in {', '.join(elsewhere)}; a server takes one"
            )

    async def _stored_or_drawn(self) -> ServerSecrets:
        secrets = await self._secrets.read()
        if secrets is not None:
            return secrets
        if await self._access.has_analyst():
            raise ProvisioningRefused(
                "the analyst exists and its key is lost; drop the user loom_analyst and run this again"
            )
        # Stored before the user is made: a first write that is cut short is finished with the stored key.
        return await self._secrets.draw()


def _number(stamp: str) -> int:
    number = stamp.partition(".")[0]
    return int(number) if number.isdigit() else 0
