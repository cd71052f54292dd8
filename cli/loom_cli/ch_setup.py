"""`loom ch-setup`: what a ClickHouse server must hold before callers' SQL runs on it."""

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from loom_cli import options
from loom_cli.console import OUT, print_json

if TYPE_CHECKING:
    from loom.insights.v1 import analysis_pb2 as pb

# A write waits for another writer's lease.
_TIMEOUT_S: Final = 180.0
_SESSION: Final = "SET log_queries_cut_to_length = 1, log_formatted_queries = 0"


def ch_setup(
    print_sql: Annotated[
        bool,
        typer.Option(
            "--print-analyst-sql",
            "--print-sql",
            help="Print the statements for an administrator instead. They hold a key and a password.",
        ),
    ] = False,
    data_dir: options.DataDir = None,
    as_json: options.AsJson = False,
) -> None:
    """Writes, or repairs, the user, policies and grants that `insights.query` needs on a ClickHouse server.

    The user of LOOM_CLICKHOUSE_URL needs access management. The engine inside Loom needs none of it.
    """
    from loom.insights.v1 import analysis_pb2 as pb  # here and below: `loom --help` need not wait for gRPC

    done = asyncio.run(_set_up(options.directory(data_dir), pb.SetUpAnalysisRequest(print=print_sql)))
    if done.boundary == "embedded":
        OUT.print("the engine inside Loom needs no setup; its key is drawn anew at each start", markup=False)
    elif print_sql:
        # One session: access statements take no settings of their own, and the key must stay out of the server's log.
        for statement in (_SESSION, *done.statements):
            sys.stdout.write(f"{statement};\n")
    elif as_json:
        print_json({"written": done.written, "stamp": done.stamp, "absent": list(done.absent)})
    else:
        later = f"; not there yet: {', '.join(done.absent)}" if done.absent else ""
        OUT.print(f"entities {done.stamp} are written{later}", markup=False)


async def _set_up(data_dir: Path, request: "pb.SetUpAnalysisRequest") -> "pb.SetUpAnalysisResponse":
    from loom.insights.v1 import analysis_pb2_grpc as grpc_stubs
    from loom_cli.owner import owner_channel

    async with owner_channel(data_dir, "insights") as channel:
        stub = grpc_stubs.AnalysisAdminServiceStub(channel)
        return await asyncio.wait_for(stub.SetUpAnalysis(request, timeout=_TIMEOUT_S), _TIMEOUT_S)
