"""What is known of namespaces, asked of identity and kept for a few seconds."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

import cachetools
import grpc.aio

from loom.identity.v1 import directory_pb2, directory_pb2_grpc, identity_pb2
from loom_common.call import Call, bind, current
from loom_common.clock import Clock, SystemClock
from loom_common.write_policy import ANYTHING, Treatment, WritePolicy

_KEPT_S: Final = 5.0
_TIMEOUT_S: Final = 5.0
_MAX_KEPT: Final = 4096

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class NamespaceInfo:
    """Describes one namespace.

    Attributes:
        org: Organisation that holds it.
        name: Name of the namespace.
        kind: `memory`, `code` or `tracker`.
        owner: Subject that owns it; empty when nobody does.
        restricted: Whether only tokens that name it may use it.
        created_at: When it was made, RFC 3339 UTC.
        role: Role of the caller on it; empty in answers about no caller.
        shared: Whether others than its owner are meant to write to it.
        classification: How sensitive its contents are, in the organisation's own word.
        traffic_class: Class of its calls to models.
        rerank_endpoint: Name of the endpoint that reranks its hits; empty for none.
        classifier_endpoint: Name of the endpoint that labels what is written to it; empty for none.
        llm_cache: Whether models' answers over it may be kept; None where the settings say.
        daily_cost_cap_usd: Units: US dollars that its calls to models may cost in a day; None where the settings say.
        updated_at: When it was last changed, RFC 3339 UTC.
        write_policy: What may be written to it.
    """

    org: str
    name: str
    kind: str = "memory"
    owner: str = ""
    restricted: bool = False
    created_at: str = ""
    role: str = ""
    shared: bool = False
    classification: str = ""
    traffic_class: str = ""
    rerank_endpoint: str = ""
    classifier_endpoint: str = ""
    llm_cache: bool | None = None
    daily_cost_cap_usd: float | None = None
    updated_at: str = ""
    write_policy: WritePolicy = ANYTHING


class Directory(Protocol):
    """Knows namespaces, and those whom calls are for."""

    async def namespace_info(self, org: str, namespace: str) -> NamespaceInfo | None:
        """Returns what is known of the namespace, or None where it does not exist.

        Raises:
            BackendUnavailable: Identity cannot be asked.
        """
        ...

    async def caller_namespaces(self, kinds: Sequence[str] = (), limit: int = 64) -> list[NamespaceInfo]:
        """Returns the namespaces that the running call's caller may read, home first, then in the token's order.

        Args:
            kinds: Keeps namespaces of these kinds; empty keeps all.
            limit: Most namespaces to return.

        Raises:
            BackendUnavailable: Identity cannot be asked.
        """
        ...

    async def trust_claims(self, org: str, trust: str) -> Mapping[str, Sequence[str]]:
        """Returns the claims that a trust requires, each with the values that it takes; empty where there is none.

        Raises:
            BackendUnavailable: Identity cannot be asked.
        """
        ...

    async def account_email(self, org: str, subject: str) -> str:
        """Returns a person's address as its identity provider verified it; empty where none was.

        Raises:
            BackendUnavailable: Identity cannot be asked.
        """
        ...


class GrpcDirectory:
    """Asks identity over gRPC. An answer is kept for five seconds; callers that ask at the same time share one call."""

    def __init__(self, channel: grpc.aio.Channel, clock: Clock | None = None) -> None:
        self._stub = directory_pb2_grpc.DirectoryServiceStub(channel)
        clock = clock or SystemClock()
        self._infos: _SharedReads[NamespaceInfo | None] = _SharedReads(clock)
        self._lists: _SharedReads[list[NamespaceInfo]] = _SharedReads(clock)

    async def namespace_info(self, org: str, namespace: str) -> NamespaceInfo | None:
        """See `Directory.namespace_info`."""

        async def read() -> NamespaceInfo | None:
            request = directory_pb2.GetNamespaceInfoRequest(org=org, namespace=namespace)
            answer = await self._stub.GetNamespaceInfo(request, timeout=_TIMEOUT_S)
            return info_from_proto(answer.namespace) if answer.found else None

        return await self._infos.get((org, namespace), read, Call(op="identity.namespace_info"))

    async def caller_namespaces(self, kinds: Sequence[str] = (), limit: int = 64) -> list[NamespaceInfo]:
        """See `Directory.caller_namespaces`."""
        call = current()

        async def read() -> list[NamespaceInfo]:
            request = directory_pb2.ListCallerNamespacesRequest(kinds=kinds, limit=limit)
            answer = await self._stub.ListCallerNamespaces(request, timeout=_TIMEOUT_S)
            return [info_from_proto(info) for info in answer.namespaces]

        digest = hashlib.sha256((call.token or "").encode()).digest()
        reader = Call(op="identity.caller_namespaces", request_id=call.request_id, token=call.token)
        return list(await self._lists.get((digest, tuple(kinds), limit), read, reader))

    async def trust_claims(self, org: str, trust: str) -> Mapping[str, Sequence[str]]:
        """See `Directory.trust_claims`. Not kept here: who asks keeps it for longer."""
        request = directory_pb2.GetTrustClaimsRequest(org=org, trust=trust)
        with bind(Call(op="identity.trust_claims")):
            answer = await self._stub.GetTrustClaims(request, timeout=_TIMEOUT_S)
        return {claim.name: tuple(claim.values) for claim in answer.claims}

    async def account_email(self, org: str, subject: str) -> str:
        """See `Directory.account_email`. Not kept here: who asks keeps it for longer."""
        request = directory_pb2.GetAccountEmailRequest(org=org, subject=subject)
        with bind(Call(op="identity.account_email")):
            answer = await self._stub.GetAccountEmail(request, timeout=_TIMEOUT_S)
        return answer.email


class FakeDirectory:
    """A directory of fixed namespaces; every caller may read all of them that its claims admit."""

    def __init__(self, infos: Iterable[NamespaceInfo] = ()) -> None:
        self.infos = {(info.org, info.name): info for info in infos}
        self.claims: dict[tuple[str, str], dict[str, list[str]]] = {}
        """What trusts require, by organisation and trust."""
        self.emails: dict[tuple[str, str], str] = {}
        """Addresses by organisation and subject."""

    def add(self, info: NamespaceInfo) -> None:
        """Adds a namespace, or replaces it."""
        self.infos[info.org, info.name] = info

    async def namespace_info(self, org: str, namespace: str) -> NamespaceInfo | None:
        """See `Directory.namespace_info`."""
        return self.infos.get((org, namespace))

    async def caller_namespaces(self, kinds: Sequence[str] = (), limit: int = 64) -> list[NamespaceInfo]:
        """See `Directory.caller_namespaces`."""
        claims = current().claims
        if claims is None:
            return []
        named = [grant.namespace for grant in claims.namespaces]
        found = [
            info
            for info in self.infos.values()
            if info.org == claims.org
            and (not kinds or info.kind in kinds)
            and (claims.named_role(info.name) is not None or (claims.wide_role is not None and not info.restricted))
        ]
        places = {name: place for place, name in enumerate(dict.fromkeys(named))}
        found.sort(key=lambda info: (info.owner != claims.sub, places.get(info.name, len(named))))
        return found[:limit]

    async def trust_claims(self, org: str, trust: str) -> Mapping[str, Sequence[str]]:
        """See `Directory.trust_claims`."""
        return self.claims.get((org, trust), {})

    async def account_email(self, org: str, subject: str) -> str:
        """See `Directory.account_email`."""
        return self.emails.get((org, subject), "")


def info_from_proto(info: identity_pb2.NamespaceInfo) -> NamespaceInfo:
    """Returns the namespace of a message."""
    return NamespaceInfo(
        org=info.org,
        name=info.name,
        kind=info.kind,
        owner=info.owner,
        restricted=info.restricted,
        created_at=info.created_at,
        role=info.role,
        shared=info.shared,
        classification=info.classification,
        traffic_class=info.traffic_class,
        rerank_endpoint=info.rerank_endpoint,
        classifier_endpoint=info.classifier_endpoint,
        llm_cache=info.llm_cache if info.HasField("llm_cache") else None,
        daily_cost_cap_usd=info.daily_cost_cap_usd if info.HasField("daily_cost_cap_usd") else None,
        updated_at=info.updated_at,
        write_policy=policy_from_proto(info.write_policy),
    )


def policy_from_proto(policy: identity_pb2.WritePolicy) -> WritePolicy:
    """Returns the policy of a message; what it leaves out is the default."""
    return WritePolicy(
        blocked_words=tuple(policy.blocked_words),
        blocked_patterns=tuple(policy.blocked_patterns),
        personal=Treatment(policy.personal or Treatment.MARK),
        secrets=Treatment(policy.secrets or Treatment.MARK),
        duplicates=policy.duplicates if policy.HasField("duplicates") else True,
        conflicts=policy.conflicts if policy.HasField("conflicts") else True,
    )


def policy_to_proto(policy: WritePolicy) -> identity_pb2.WritePolicy | None:
    """Returns the message of a policy; None for the default."""
    if policy == WritePolicy():
        return None
    return identity_pb2.WritePolicy(
        blocked_words=policy.blocked_words,
        blocked_patterns=policy.blocked_patterns,
        personal=policy.personal.value,
        secrets=policy.secrets.value,
        duplicates=policy.duplicates,
        conflicts=policy.conflicts,
    )


class _SharedReads(Generic[T]):
    """Keeps what was read for a while, and lets those who want the same thing at the same time share one read."""

    def __init__(self, clock: Clock) -> None:
        self._kept: cachetools.TTLCache[Hashable, T] = cachetools.TTLCache(_MAX_KEPT, _KEPT_S, clock.monotonic_s)
        self._running: dict[Hashable, asyncio.Task[T]] = {}

    async def get(self, key: Hashable, read: Callable[[], Awaitable[T]], call: Call) -> T:
        """Returns what is kept under `key`, else what `read` returns. A failure is kept by nobody."""
        if key in self._kept:
            return self._kept[key]
        task = self._running.get(key)
        if task is None:
            task = asyncio.create_task(self._read(key, read, call))
            self._running[key] = task
            task.add_done_callback(lambda ended: self._forget(key, ended))
        # Shielded: one caller that leaves must not take the answer from the others.
        return await asyncio.shield(task)

    def _forget(self, key: Hashable, ended: asyncio.Task[T]) -> None:
        self._running.pop(key, None)
        if not ended.cancelled():
            ended.exception()  # looked at: everyone who waited for it may have left

    async def _read(self, key: Hashable, read: Callable[[], Awaitable[T]], call: Call) -> T:
        # Under a call of its own: the first caller's deadline is not the others'.
        with bind(call):
            value = await read()
        self._kept[key] = value
        return value
