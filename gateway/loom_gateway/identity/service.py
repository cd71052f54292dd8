"""Identity, put together: what the gateway serves over gRPC and what it checks its own callers with."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from pydantic import SecretStr

from loom_common.auth.directory import Directory
from loom_common.auth.verifier import TokenVerifier
from loom_common.clickhouse import ClickHouse
from loom_common.clock import Clock
from loom_common.conditional_writes import Claims as ConditionalWrites
from loom_common.ids import SortableIds
from loom_common.sealing import Sealer
from loom_gateway.identity.api.directory import DirectoryServicer
from loom_gateway.identity.api.identity import IdentityServicer
from loom_gateway.identity.app.directory import LocalDirectory
from loom_gateway.identity.app.model_calls import DEFAULT_REFRESH_S, ModelCallsDesk, SwitchBoard
from loom_gateway.identity.app.namespaces import NamespaceDesk
from loom_gateway.identity.app.revocations import RevocationFeed
from loom_gateway.identity.app.signing import SEAL_PURPOSE, SigningKeys
from loom_gateway.identity.app.tokens import TokenDesk
from loom_gateway.identity.store.model_calls import ModelCallsRepository
from loom_gateway.identity.store.namespaces import NamespaceRepository
from loom_gateway.identity.store.revocations import RevocationRepository
from loom_gateway.identity.store.signing_keys import SigningKeyRepository
from loom_gateway.identity.store.tokens import TokenRepository

SERVICE: Final = "identity"
"""Marks identity's rows in the tables that services share."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What identity offers inside its own process, where no call to itself is needed."""

    verifier: TokenVerifier
    directory: Directory
    feed: RevocationFeed
    identity_servicer: IdentityServicer
    directory_servicer: DirectoryServicer


@asynccontextmanager
async def open_identity(
    ch: ClickHouse,
    secret: SecretStr,
    previous_secret: SecretStr | None,
    clock: Clock,
    *,
    policy_refresh_s: float = DEFAULT_REFRESH_S,
) -> AsyncIterator[Identity]:
    """Opens identity over migrated tables: reads its keys, makes the first one, and follows revocations and switches.

    Args:
        ch: The database.
        secret: Secret that the keys are sealed under.
        previous_secret: Secret before it.
        clock: Time.
        policy_refresh_s: Time between two readings of the switches over calls to models.

    Raises:
        SettingsError: The secret does not open the signing keys.
        LoomError: The database cannot be read.
    """
    writes = ConditionalWrites(ch, SERVICE)
    namespaces, tokens = NamespaceRepository(ch), TokenRepository(ch)
    revocations = RevocationRepository(ch)
    keys = SigningKeys(SigningKeyRepository(ch), Sealer(secret, previous_secret, purpose=SEAL_PURPOSE), writes, clock)
    await keys.open()
    switches = ModelCallsRepository(ch)
    board = SwitchBoard(switches, clock, policy_refresh_s)
    async with RevocationFeed(revocations, keys, board, clock) as feed:
        namespace_desk = NamespaceDesk(namespaces, writes, clock)
        token_desk = TokenDesk(tokens, namespaces, revocations, feed, keys, clock, SortableIds(clock))
        directory = LocalDirectory(namespaces, namespace_desk, clock)
        yield Identity(
            verifier=TokenVerifier(feed, feed, clock),
            directory=directory,
            feed=feed,
            identity_servicer=IdentityServicer(
                token_desk, namespace_desk, ModelCallsDesk(switches, board, writes, clock)
            ),
            directory_servicer=DirectoryServicer(feed, directory),
        )
