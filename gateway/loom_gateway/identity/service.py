"""Identity, put together: what the gateway serves over gRPC and what it checks its own callers with."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from pydantic import SecretStr

from loom.identity.v1 import access_pb2_grpc, directory_pb2_grpc, identity_pb2_grpc, secrets_pb2_grpc, sign_in_pb2_grpc
from loom_common.auth.directory import Directory
from loom_common.auth.verifier import TokenVerifier
from loom_common.clickhouse import ClickHouse
from loom_common.clock import Clock
from loom_common.conditional_writes import Claims as ConditionalWrites
from loom_common.idempotency import IdempotencyKeys
from loom_common.ids import SortableIds
from loom_common.resealing import Reseal
from loom_common.sealing import Sealer
from loom_common.server import Service
from loom_gateway.identity.api.access import AccessServicer
from loom_gateway.identity.api.directory import DirectoryServicer
from loom_gateway.identity.api.identity import IdentityServicer
from loom_gateway.identity.api.secrets import SecretsServicer
from loom_gateway.identity.api.sign_in import SignInServicer
from loom_gateway.identity.app.device import SEAL_PURPOSE as DEVICE_PURPOSE
from loom_gateway.identity.app.device import DeviceDesk
from loom_gateway.identity.app.directory import LocalDirectory
from loom_gateway.identity.app.ending import TokenEnder
from loom_gateway.identity.app.exchange import TokenExchange
from loom_gateway.identity.app.grants import GrantDesk
from loom_gateway.identity.app.issuer_tokens import IssuerTokens
from loom_gateway.identity.app.jwks import IssuerKeySource
from loom_gateway.identity.app.minting import Mint
from loom_gateway.identity.app.model_calls import DEFAULT_REFRESH_S, ModelCallsDesk, SwitchBoard
from loom_gateway.identity.app.namespaces import NamespaceDesk
from loom_gateway.identity.app.orgs import AccountDesk, OrgDesk
from loom_gateway.identity.app.revocations import RevocationFeed
from loom_gateway.identity.app.rights import RightsReader
from loom_gateway.identity.app.session_end import SessionEnd
from loom_gateway.identity.app.sessions import SessionDesk
from loom_gateway.identity.app.signing import SEAL_PURPOSE, SigningKeys
from loom_gateway.identity.app.tokens import TokenDesk
from loom_gateway.identity.app.trusts import TrustDesk
from loom_gateway.identity.store.accounts import AccountRepository
from loom_gateway.identity.store.approvals import ApprovalRepository
from loom_gateway.identity.store.grants import GrantRepository
from loom_gateway.identity.store.model_calls import ModelCallsRepository
from loom_gateway.identity.store.namespaces import NamespaceRepository
from loom_gateway.identity.store.orgs import OrgRepository
from loom_gateway.identity.store.revocations import RevocationRepository
from loom_gateway.identity.store.sessions import SessionRepository
from loom_gateway.identity.store.signing_keys import SigningKeyRepository
from loom_gateway.identity.store.tokens import TokenRepository
from loom_gateway.identity.store.trusts import TrustRepository

DEFAULT_SESSION_LIFE: Final = timedelta(hours=12)

SERVICE: Final = "identity"
"""Marks identity's rows in the tables that services share."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What identity offers inside its own process, where no call to itself is needed."""

    verifier: TokenVerifier
    directory: Directory
    feed: RevocationFeed
    identity_servicer: IdentityServicer
    access_servicer: AccessServicer
    directory_servicer: DirectoryServicer
    secrets_servicer: SecretsServicer
    sign_in_servicer: SignInServicer
    sessions: SessionDesk
    device: DeviceDesk
    accounts: AccountDesk
    issuer_tokens: IssuerTokens
    grants: GrantRepository

    @property
    def services(self) -> tuple[Service, ...]:
        """What its gRPC server serves."""
        return (
            Service(
                identity_pb2_grpc.add_IdentityServiceServicer_to_server,
                self.identity_servicer,
                "loom.identity.v1.IdentityService",
            ),
            Service(
                access_pb2_grpc.add_AccessServiceServicer_to_server,
                self.access_servicer,
                "loom.identity.v1.AccessService",
            ),
            Service(
                directory_pb2_grpc.add_DirectoryServiceServicer_to_server,
                self.directory_servicer,
                "loom.identity.v1.DirectoryService",
            ),
            Service(
                secrets_pb2_grpc.add_SecretsServiceServicer_to_server,
                self.secrets_servicer,
                "loom.identity.v1.SecretsService",
            ),
            Service(
                sign_in_pb2_grpc.add_SignInServiceServicer_to_server,
                self.sign_in_servicer,
                "loom.identity.v1.SignInService",
            ),
        )


@asynccontextmanager
async def open_identity(
    ch: ClickHouse,
    secret: SecretStr,
    previous_secret: SecretStr | None,
    clock: Clock,
    *,
    policy_refresh_s: float = DEFAULT_REFRESH_S,
    key_replaced_after: timedelta | None = None,
    session_life: timedelta = DEFAULT_SESSION_LIFE,
) -> AsyncIterator[Identity]:
    """Opens identity over migrated tables: reads its keys, makes the first one, and follows revocations and switches.

    Args:
        ch: The database.
        secret: Secret that the keys are sealed under.
        previous_secret: Secret before it.
        clock: Time.
        policy_refresh_s: Time between two readings of the switches over calls to models.
        key_replaced_after: Age from which on the key that signs is replaced; None for never.
        session_life: Life of a sign-in session.

    Raises:
        SettingsError: The secret does not open the signing keys.
        LoomError: The database cannot be read.
    """
    stores = _Stores(ch)
    writes = ConditionalWrites(ch, SERVICE)
    sealer = Sealer(secret, previous_secret, purpose=SEAL_PURPOSE)
    keys = SigningKeys(stores.keys, sealer, writes, clock, replaced_after=key_replaced_after)
    await keys.open()
    board = SwitchBoard(stores.switches, clock, policy_refresh_s)
    device_sealer = Sealer(secret, previous_secret, purpose=DEVICE_PURPOSE)
    async with RevocationFeed(stores.revocations, keys, board, clock) as feed:
        core = _Core(stores, writes, clock, feed, keys)
        sessions = core.sessions(session_life)
        yield Identity(
            verifier=TokenVerifier(feed, feed, clock),
            directory=core.directory,
            feed=feed,
            identity_servicer=core.identity_servicer(board, IdempotencyKeys(ch, SERVICE, clock)),
            access_servicer=core.access_servicer(),
            directory_servicer=DirectoryServicer(feed, core.directory, core.mint),
            secrets_servicer=SecretsServicer(Reseal(keys.sealed_kind()), keys, feed),
            sign_in_servicer=SignInServicer(sessions),
            sessions=sessions,
            device=DeviceDesk(stores.approvals, sessions, device_sealer, writes, clock),
            accounts=core.accounts,
            issuer_tokens=core.issuer_tokens,
            grants=stores.grants,
        )


class _Core:
    """What most of identity's parts are built over."""

    def __init__(
        self, stores: "_Stores", writes: ConditionalWrites, clock: Clock, feed: RevocationFeed, keys: SigningKeys
    ) -> None:
        self._stores = stores
        self._writes = writes
        self._clock = clock
        self._feed = feed
        self._new_id = SortableIds(clock)
        self.rights = RightsReader(stores.grants, stores.namespaces, stores.accounts)
        self.mint = Mint(stores.tokens, stores.namespaces, self.rights, feed, keys, clock, self._new_id)
        self.ender = TokenEnder(stores.tokens, stores.namespaces, self.rights, feed, clock)
        self.session_end = SessionEnd(stores.sessions, self.ender, clock)
        self.namespaces = NamespaceDesk(stores.namespaces, writes, clock, self.ender)
        self.directory = LocalDirectory(stores.namespaces, self.namespaces, stores.trusts, stores.accounts, clock)
        self.accounts = AccountDesk(stores.accounts, self.ender, writes, clock)
        self.issuer_tokens = IssuerTokens(IssuerKeySource(clock), clock)

    def identity_servicer(self, board: SwitchBoard, repeats: IdempotencyKeys) -> IdentityServicer:
        """Returns what manages tokens, namespaces and switches."""
        stores, clock = self._stores, self._clock
        exchange = TokenExchange(
            stores.trusts, self.issuer_tokens, stores.namespaces, self.namespaces, self.rights, self.mint, clock
        )
        return IdentityServicer(
            TokenDesk(stores.tokens, stores.revocations, self.mint, self.ender, self._feed, clock),
            self.session_end,
            exchange,
            self.namespaces,
            ModelCallsDesk(stores.switches, board, self._writes, clock),
            repeats,
        )

    def access_servicer(self) -> AccessServicer:
        """Returns what manages who may do what."""
        stores, writes, clock = self._stores, self._writes, self._clock
        return AccessServicer(
            GrantDesk(stores.grants, stores.namespaces, self.ender, writes, clock),
            OrgDesk(stores.orgs, writes, clock),
            TrustDesk(stores.trusts, self.ender, writes, clock),
            self.accounts,
        )

    def sessions(self, life: timedelta) -> SessionDesk:
        """Returns the desk of sign-in sessions, each of which lasts so long."""
        return SessionDesk(
            self._stores.sessions,
            self.rights,
            self.mint,
            self._feed,
            self.session_end,
            self._writes,
            self._clock,
            self._new_id,
            life=life,
        )


class _Stores:
    """Identity's tables."""

    def __init__(self, ch: ClickHouse) -> None:
        self.accounts = AccountRepository(ch)
        self.approvals = ApprovalRepository(ch)
        self.grants = GrantRepository(ch)
        self.keys = SigningKeyRepository(ch)
        self.namespaces = NamespaceRepository(ch)
        self.orgs = OrgRepository(ch)
        self.revocations = RevocationRepository(ch)
        self.sessions = SessionRepository(ch)
        self.switches = ModelCallsRepository(ch)
        self.tokens = TokenRepository(ch)
        self.trusts = TrustRepository(ch)
