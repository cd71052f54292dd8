"""How the operator's commands reach a running Loom: over gRPC, with the key that lies in its data directory."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, TypeAlias, TypeVar

import grpc

from loom.identity.v1 import access_pb2_grpc, identity_pb2_grpc
from loom_cli import run_file
from loom_cli.console import CommandError
from loom_common.auth.service_credentials import OPERATOR, ServiceKey
from loom_common.channel import open_channel

T = TypeVar("T")
IdentityStub: TypeAlias = "identity_pb2_grpc.IdentityServiceAsyncStub"
"""Identity over an async channel; the name exists for type checkers alone."""
AccessStub: TypeAlias = "access_pb2_grpc.AccessServiceAsyncStub"
"""Grants and organisations over an async channel; the name exists for type checkers alone."""

# Source: chosen. A command that waits longer seems to hang.
TIMEOUT_S: Final = 15.0


def operator_key(data_dir: Path) -> ServiceKey:
    """Returns the operator's key of a data directory.

    Raises:
        CommandError: It cannot be read.
    """
    path = data_dir / "keys" / f"{OPERATOR}.jwk"
    try:
        return ServiceKey.load(path)
    except (OSError, ValueError) as error:
        raise CommandError(f"{path} cannot be read; run this as the user who started Loom") from error


def as_operator(data_dir: Path, work: Callable[[IdentityStub], Awaitable[T]]) -> T:
    """Runs `work` with identity's stub, as the operator of the Loom that runs on `data_dir`.

    Raises:
        CommandError: None runs there, or its key cannot be read.
        LoomError: The call was refused or failed.
    """
    return over_identity(data_dir, lambda channel: work(identity_stub(channel)))


def over_access(data_dir: Path, work: Callable[[AccessStub], Awaitable[T]]) -> T:
    """Runs `work` with the stub for grants and organisations; otherwise as `as_operator`."""
    return over_identity(data_dir, lambda channel: work(access_pb2_grpc.AccessServiceStub(channel)))


def over_identity(data_dir: Path, work: Callable[[grpc.aio.Channel], Awaitable[T]]) -> T:
    """Runs `work` with a channel to identity; otherwise as `as_operator`."""
    address = run_file.running(data_dir).grpc["identity"]
    key = operator_key(data_dir)

    async def session() -> T:
        async with open_channel(address, key) as channel:
            return await asyncio.wait_for(work(channel), TIMEOUT_S)

    return asyncio.run(session())


def identity_stub(channel: grpc.aio.Channel) -> IdentityStub:
    """Returns identity's stub on a channel."""
    return identity_pb2_grpc.IdentityServiceStub(channel)
