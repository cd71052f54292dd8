"""Builds what tells of namespaces and of Loom itself: namespace reads, mentor, costs and help."""

from loom.insights.v1 import help_pb2_grpc, mentor_pb2_grpc, namespace_pb2_grpc, usage_pb2_grpc
from loom_common.auth.directory import Directory
from loom_common.clickhouse import ClickHouse
from loom_common.clock import Clock
from loom_common.ops import all_ops
from loom_common.server import Service
from loom_insights.api.help import HelpServicer
from loom_insights.api.mentor import MentorServicer
from loom_insights.api.namespace import NamespaceServicer
from loom_insights.api.usage import UsageServicer
from loom_insights.app.help import Help
from loom_insights.app.memory import MemoryFacts
from loom_insights.app.namespaces import ReadableNamespaces
from loom_insights.app.reads import NamespaceReads
from loom_insights.app.usage import CostReports, UsageAccounts
from loom_insights.store.activity import LedgerActivity
from loom_insights.store.shipped_docs import shipped_pages


def read_services(
    ch: ClickHouse, memory: MemoryFacts, directory: Directory, accounts: UsageAccounts, clock: Clock
) -> tuple[Service, ...]:
    """Returns the services over a migrated database."""
    activity = LedgerActivity(ch)
    reads = NamespaceReads(memory, activity, clock)
    help_ = Help(shipped_pages)
    costs = CostReports(activity, ReadableNamespaces(all_ops()["usage.costs"], directory), clock)
    return (
        Service(
            usage_pb2_grpc.add_UsageServiceServicer_to_server,
            UsageServicer(accounts, costs),
            "loom.insights.v1.UsageService",
        ),
        Service(
            namespace_pb2_grpc.add_NamespaceServiceServicer_to_server,
            NamespaceServicer(reads),
            "loom.insights.v1.NamespaceService",
        ),
        Service(
            mentor_pb2_grpc.add_MentorServiceServicer_to_server,
            MentorServicer(reads, help_),
            "loom.insights.v1.MentorService",
        ),
        Service(help_pb2_grpc.add_HelpServiceServicer_to_server, HelpServicer(help_), "loom.insights.v1.HelpService"),
    )
