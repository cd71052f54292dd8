"""Python client of Loom, the memory server for AI agents.

from loom_client import Loom

with Loom() as loom:  # LOOM_BASE_URL and LOOM_API_KEY
    loom.memory.set("Ana drinks tea in the morning", key="ana-drink")
    for hit in loom.memory.search("what does Ana drink?").hits:
        print(hit.score, hit.memory.value)
"""

from loom_client._generated.types import Memory, MemoryHit, MemoryInput
from loom_client.client import AsyncLoom, Loom
from loom_client.errors import (
    ERRORS,
    AnalysisUnavailable,
    AssistantSelfCall,
    AssistantUnavailable,
    AuthInsufficient,
    BackendUnavailable,
    BudgetExhausted,
    Cancelled,
    Conflict,
    DeadlineExceeded,
    EmbedTimeout,
    InternalError,
    InvalidArgument,
    LoomConfigError,
    LoomConnectionError,
    LoomError,
    MalformedRequest,
    ModelCallDeferred,
    ModelCallRefused,
    ModelCallsOff,
    ModelCallUnattributed,
    ModelPolicyUnread,
    NotFound,
    Overloaded,
    PayloadTooLarge,
    ProviderFailed,
    QueryLimit,
    QueryRejected,
    RateLimited,
    ReadsLlmFree,
    TokenExpired,
    TokenRevoked,
    Unauthenticated,
    UnknownOp,
)
from loom_client.sessions import AsyncSession, Session
from loom_client.transfer import ExportedLine, Imported, RefusedLine

__all__ = [
    "ERRORS",
    "AnalysisUnavailable",
    "AssistantSelfCall",
    "AssistantUnavailable",
    "AsyncLoom",
    "AsyncSession",
    "AuthInsufficient",
    "BackendUnavailable",
    "BudgetExhausted",
    "Cancelled",
    "Conflict",
    "DeadlineExceeded",
    "EmbedTimeout",
    "ExportedLine",
    "Imported",
    "InternalError",
    "InvalidArgument",
    "Loom",
    "LoomConfigError",
    "LoomConnectionError",
    "LoomError",
    "MalformedRequest",
    "Memory",
    "MemoryHit",
    "MemoryInput",
    "ModelCallDeferred",
    "ModelCallRefused",
    "ModelCallUnattributed",
    "ModelCallsOff",
    "ModelPolicyUnread",
    "NotFound",
    "Overloaded",
    "PayloadTooLarge",
    "ProviderFailed",
    "QueryLimit",
    "QueryRejected",
    "RateLimited",
    "ReadsLlmFree",
    "RefusedLine",
    "Session",
    "TokenExpired",
    "TokenRevoked",
    "Unauthenticated",
    "UnknownOp",
]
