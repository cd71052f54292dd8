"""Builds the assistant and hands its parts to each other."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from loom.assistant.v1 import assistant_pb2_grpc
from loom_assistant.api.assistant import AssistantServicer
from loom_assistant.app.host import NoHost
from loom_assistant.census import CENSUS
from loom_assistant.settings import AssistantSettings
from loom_common.clickhouse import ClickHouse
from loom_common.erasure import erasure_service
from loom_common.peers import open_peers
from loom_common.server import RunningServer, Service, ServiceSpec, serving
from loom_common.status import FixedStatus, Problem, StatusReport

NAME = "assistant"

# Ready, because it answers as it should: its one operation says what is missing.
_STATUS = StatusReport(
    ready=True,
    problems=(
        Problem(
            "assistant_not_configured",
            "This build has no assistant: `assistant.ask` refuses, everything else works. Nothing to do.",
        ),
    ),
)


@asynccontextmanager
async def open_service(settings: AssistantSettings, ch: ClickHouse) -> AsyncIterator[RunningServer]:
    """Serves the assistant until it is left; `ch` is every service's, and holds nothing of the assistant's yet.

    Raises:
        SettingsError: A key file cannot be used.
        ListenError: The address is taken.
    """
    async with open_peers(settings, NAME) as peers:
        service = Service(
            assistant_pb2_grpc.add_AssistantServiceServicer_to_server,
            AssistantServicer(NoHost()),
            "loom.assistant.v1.AssistantService",
        )
        services = (service, erasure_service(ch, CENSUS))
        spec = ServiceSpec(NAME, settings.assistant_listen, services, FixedStatus(_STATUS))
        async with serving(spec, settings, peers.deps) as server:
            yield server
