"""`loom secrets`: seals what the database holds of secrets anew, and replaces the key that signs tokens."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

import typer

from loom_cli import options
from loom_cli.console import OUT, print_json

if TYPE_CHECKING:
    from loom.identity.v1 import secrets_pb2_grpc
    from loom.insights.v1 import analysis_pb2

app = typer.Typer(help="Looks after secrets in the database.", no_args_is_help=True)

T = TypeVar("T")
# Longer than a replica that died while it held the keys may hold them.
_TIMEOUT_S: Final = 60.0


@app.command("reseal")
def reseal(data_dir: options.DataDir = None, as_json: options.AsJson = False) -> None:
    """Seals every secret in the database anew, under the current LOOM_JWT_SECRET.

    Set the new secret, and the old one as LOOM_JWT_SECRET_PREVIOUS, restart, and run this; then the old one can go. A
    running Loom does the work; where none runs, this command does. Ends with 1 when something opens under neither.
    """
    from loom.identity.v1 import secrets_pb2 as pb  # here and below: `loom --help` need not wait for gRPC

    directory = options.directory(data_dir)
    # What proves the secret is sealed anew last of all, by identity.
    analysis = asyncio.run(_reseal_analysis(directory))
    done = _with_secrets(directory, lambda secrets: secrets.Reseal(pb.ResealRequest()))
    counts = (analysis.resealed_count, analysis.current_count, analysis.unopened_count)
    if any(counts):
        done.kinds.insert(
            0,
            pb.Resealed(
                kind="analysis_secrets", resealed_count=counts[0], current_count=counts[1], unopened_count=counts[2]
            ),
        )
    unopened = sum(kind.unopened_count for kind in done.kinds)
    if as_json:
        print_json(
            [
                {
                    "kind": kind.kind,
                    "resealed": kind.resealed_count,
                    "current": kind.current_count,
                    "unopened": kind.unopened_count,
                }
                for kind in done.kinds
            ]
        )
    else:
        for kind in done.kinds:
            left = f", {kind.unopened_count} open under neither secret" if kind.unopened_count else ""
            OUT.print(
                f"{kind.kind}: {kind.resealed_count} sealed anew, {kind.current_count} were so already{left}",
                markup=False,
            )
    if unopened:
        raise typer.Exit(1)


@app.command("rotate-signing-key")
def rotate_signing_key(
    end_all_tokens: Annotated[
        bool,
        typer.Option("--end-all-tokens", help="Throw older keys away, and with them every token: for one that leaked."),
    ] = False,
    data_dir: options.DataDir = None,
    as_json: options.AsJson = False,
) -> None:
    """Makes a new key that signs tokens. What older keys signed stays good until it ends."""
    from loom.identity.v1 import secrets_pb2 as pb

    request = pb.RotateSigningKeyRequest(end_all_tokens=end_all_tokens)
    done = _with_secrets(options.directory(data_dir), lambda secrets: secrets.RotateSigningKey(request))
    if as_json:
        print_json({"key_id": done.key_id, "signs_from": done.signs_from})
        return
    ended = "; every older token has ended" if end_all_tokens else ""
    OUT.print(f"key {done.key_id} signs from {done.signs_from}{ended}", markup=False)


async def _reseal_analysis(data_dir: Path) -> "analysis_pb2.ResealAnalysisResponse":
    from loom.insights.v1 import analysis_pb2, analysis_pb2_grpc
    from loom_cli.owner import owner_channel

    async with owner_channel(data_dir, "insights") as channel:
        stub = analysis_pb2_grpc.AnalysisAdminServiceStub(channel)
        return await asyncio.wait_for(stub.ResealAnalysis(analysis_pb2.ResealAnalysisRequest()), _TIMEOUT_S)


def _with_secrets(data_dir: Path, work: "Callable[[secrets_pb2_grpc.SecretsServiceAsyncStub], Awaitable[T]]") -> T:
    from loom.identity.v1 import secrets_pb2_grpc as grpc_stubs
    from loom_cli.owner import owner_channel

    async def session() -> T:
        async with owner_channel(data_dir, "identity") as channel:
            return await asyncio.wait_for(work(grpc_stubs.SecretsServiceStub(channel)), _TIMEOUT_S)

    return asyncio.run(session())
