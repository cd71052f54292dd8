"""What a service needs to know its callers and to call others, opened as one."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TypeVar

import grpc.aio

from loom_common.auth.directory import Directory, GrpcDirectory
from loom_common.auth.service_credentials import ServiceKey, ServiceKeyring
from loom_common.auth.verifier import TokenVerifier
from loom_common.auth.watch import IdentityWatch
from loom_common.channel import open_channel
from loom_common.clock import SystemClock
from loom_common.ledger import GrpcLedgerSink, LedgerSink
from loom_common.model_calls.gate import ModelCallGate
from loom_common.model_calls.reads import DirectoryReads
from loom_common.model_calls.switch import FollowedSwitch, SwitchCopy
from loom_common.server import ServerDeps
from loom_common.settings import CommonSettings, InferenceSettings, SettingsError

T = TypeVar("T")


class Peers:
    """The other services, as one service sees them. Made by `open_peers`, which closes its channels."""

    def __init__(self, settings: CommonSettings, key: ServiceKey, stack: AsyncExitStack) -> None:
        self.key = key
        self._settings = settings
        self._stack = stack
        self._channels: dict[str, grpc.aio.Channel] = {}
        self.directory: Directory
        self.ledger: LedgerSink
        self.deps: ServerDeps
        self.org_switch: SwitchCopy

    def channel(self, addr: str) -> grpc.aio.Channel:
        """Returns the channel to `addr`; the same one each time."""
        if addr not in self._channels:
            channel = open_channel(
                addr,
                self.key,
                deadline_s=self._settings.default_deadline_s,
                max_message_bytes=self._settings.grpc_max_message_bytes,
            )
            self._stack.push_async_callback(channel.close, None)
            self._channels[addr] = channel
        return self._channels[addr]

    def model_calls(self, settings: InferenceSettings) -> ModelCallGate:
        """Returns the gate before calls to models that leave this process, and before jobs that batch for them."""
        switch = FollowedSwitch(self.org_switch, settings.policy_max_stale_s)
        return ModelCallGate(settings.inference_policy, switch, DirectoryReads(self.directory))


@asynccontextmanager
async def open_peers(settings: CommonSettings, name: str) -> AsyncIterator[Peers]:
    """Opens what every service but the gateway needs; nothing waits for a peer to answer.

    Args:
        settings: Addresses, key files and limits.
        name: Name of the service; its key must be that service's.

    Raises:
        SettingsError: A key file is not set, not readable, or another service's.
    """
    key, keyring = load_service_keys(settings, name)
    async with AsyncExitStack() as stack:
        peers = Peers(settings, key, stack)
        identity = peers.channel(settings.identity_addr)
        peers.directory = GrpcDirectory(identity)
        watch = await stack.enter_async_context(IdentityWatch(identity))
        peers.org_switch = watch.org_switch
        sink = await stack.enter_async_context(GrpcLedgerSink(peers.channel(settings.insights_addr), peers.directory))
        peers.ledger = sink
        peers.deps = ServerDeps(
            verifier=TokenVerifier(watch, watch, SystemClock()),
            keyring=keyring,
            directory=peers.directory,
            ledger=sink,
            identity_ready=watch.following,
        )
        yield peers


def load_service_keys(settings: CommonSettings, name: str) -> tuple[ServiceKey, ServiceKeyring]:
    """Returns the service's own key and the keyring of all of them.

    Raises:
        SettingsError: A file is not set, not readable, or the key is another service's.
    """
    key = _loaded("LOOM_SERVICE_KEY", settings.service_key, ServiceKey.load)
    keyring = _loaded("LOOM_SERVICE_JWKS", settings.service_jwks, ServiceKeyring.load)
    if key.name != name:
        raise SettingsError(f"LOOM_SERVICE_KEY holds the key of {key.name}, and this service is {name}.")
    return key, keyring


def _loaded(variable: str, path: Path | None, load: Callable[[Path], T]) -> T:
    if path is None:
        raise SettingsError(f"{variable} is not set. `loom up` makes the file; deployments mount it.")
    try:
        return load(path)
    except OSError as error:
        raise SettingsError(f"{variable}: {path} cannot be read: {error.strerror}.") from None
    except ValueError as error:
        raise SettingsError(f"{variable}: {path} is not what it should be: {error}.") from None
