"""`loom up --processes`: each service a process of its own, as in a deployment, and what each port refuses."""

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Self

import grpc
import httpx
import jwt
import pytest
from support.leaks import shown_secrets
from support.transports import reason_of_rpc
from support.up import UpProcess, children, environment, eventually, is_running, loom_up, read_run, run_loom

from loom.identity.v1 import access_pb2, access_pb2_grpc, sign_in_pb2, sign_in_pb2_grpc
from loom.identity.v1 import identity_pb2 as pb
from loom.identity.v1 import identity_pb2_grpc as pb_grpc
from loom.memory.v1 import memory_pb2
from loom_common.attribution import Attribution
from loom_common.auth.claims import Claims, NamespaceGrant, ReadScope, Role
from loom_common.auth.service_credentials import ServiceKey
from loom_common.auth.tokens import SigningKey, sign_payload, sign_token
from loom_common.clock import FakeClock
from loom_common.errors import Reason
from loom_common.ids import new_id
from loom_common.ops import all_ops

SERVICES = ("identity", "embedding", "llm", "memory", "insights", "assistant")
INTERNAL_OPS = [spec for spec in all_ops().values() if spec.internal]
# Answered by every service to any valid token.
STATUS = "/loom.common.v1.StatusService/GetStatus"
REVOKED_WITHIN_S = 2.0
Metadata = tuple[tuple[str, str | bytes], ...]


@dataclass
class Deployment:
    """A Loom in several processes, and the credentials that callers may hold or forge."""

    up: UpProcess
    operator: pb_grpc.IdentityServiceStub
    channels: dict[str, grpc.Channel]
    refusals: list[str] = field(default_factory=list)
    """Every error body that a caller was shown."""

    def reason(self, service: str, metadata: Metadata, method: str = STATUS) -> Reason | None:
        """Returns why a service refuses a call with this metadata, or None where it answers."""
        call = self.channels[service].unary_stream(method, request_serializer=bytes, response_deserializer=bytes)
        try:
            for _ in call(b"", metadata=metadata, timeout=20):
                return None
        except grpc.RpcError as error:
            self.refusals.append(f"{error.details()} {error.trailing_metadata()}")
            return reason_of_rpc(error)
        return None

    def over_http(self, headers: dict[str, str]) -> Reason | None:
        """Returns why the gateway refuses a call with these headers, or None where it answers."""
        answer = httpx.post(f"{self.up.http_url}/v1/memory.list", json={}, headers=headers, timeout=20, trust_env=False)
        if answer.status_code == 200:
            return None
        self.refusals.append(answer.text)
        return Reason(answer.json()["error"]["code"])

    def token(self, role: str = "admin", **more: Any) -> pb.CreateTokenResponse:
        """Makes a token as the operator."""
        grants = [pb.NamespaceRole(namespace="default", role=role)]
        request = pb.CreateTokenRequest(org="default", namespaces=grants, **{"subject": "sa:test", **more})
        return self.operator.CreateToken(request, metadata=credential(self.key("operator").mint()))

    def revoke(self, token_id: str = "", **more: str) -> None:
        """Revokes a token, or what is named instead, as the operator."""
        request = pb.RevokeTokenRequest(org="default", token_id=token_id, **more)
        self.operator.RevokeToken(request, metadata=credential(self.key("operator").mint()))

    def token_of_session(self, subject: str) -> tuple[str, str]:
        """Signs a person in and makes a token in its session; returns the session and the token."""
        metadata, channel = credential(self.key("operator").mint()), self.channels["identity"]
        grant = access_pb2.SetGrantRequest(org="default", subject=subject, on_namespace="default", role="admin")
        access_pb2_grpc.AccessServiceStub(channel).SetGrant(grant, metadata=metadata)
        wish = sign_in_pb2.CreateSignInLinkRequest(org="default", subject=subject)
        link = sign_in_pb2_grpc.SignInServiceStub(channel).CreateSignInLink(wish, metadata=metadata)
        page = {"origin": self.up.http_url}
        with httpx.Client(base_url=self.up.http_url, headers=page, trust_env=False) as browser:
            answer = browser.post("/sign-in/link", json={"secret": link.secret})
            cookie = answer.headers["set-cookie"].partition(";")[0]
            held = {"cookie": cookie, "x-loom-csrf": answer.json()["csrf_token"]}
            body = {"namespaces": [{"namespace": "default", "role": "admin"}]}
            made = browser.post("/v1/token.create", json=body, headers=held)
        assert made.status_code == 200, made.text
        return cookie.partition("=")[2].partition(".")[0], made.json()["token"]

    def key(self, service: str, clock: FakeClock | None = None) -> ServiceKey:
        """Returns a service's real key."""
        return ServiceKey.load(self.up.data_dir / "keys" / f"{service}.jwk", clock)


def bearer(token: str, *more: tuple[str, str | bytes]) -> Metadata:
    return (("authorization", f"Bearer {token}"), *more)


def credential(token: str) -> Metadata:
    return (("x-loom-service", token),)


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    data, env = tmp_path_factory.mktemp("processes") / "data", environment(LOOM_LOG_LEVEL="debug")
    with loom_up(data, "--processes", env=env) as up:
        channels = {service: grpc.insecure_channel(up.address(service)) for service in SERVICES}
        yield Deployment(up, pb_grpc.IdentityServiceStub(channels["identity"]), channels)
        for channel in channels.values():
            channel.close()


@pytest.fixture(scope="module")
def refused_tokens(deployment: Deployment) -> dict[str, tuple[str | None, Reason]]:
    """Tokens that nothing accepts, each with the reason."""
    short, revoked = deployment.token(ttl_s=1), deployment.token()
    deployment.revoke(revoked.token_id)
    now_s = datetime.now(UTC).timestamp()
    grants = (NamespaceGrant("default", Role.ADMIN),)
    claims = Claims(
        "sa:test", "default", grants, jti=new_id(), iat=now_s, exp=now_s + 600, read_scope=ReadScope.NAMESPACE
    )
    kid = jwt.get_unverified_header(deployment.up.token)["kid"]
    unsigned = jwt.encode({**claims.to_payload(), "iss": "loom", "aud": "loom"}, None, "none", headers={"kid": kid})
    found: dict[str, tuple[str | None, Reason]] = {
        "none": (None, Reason.UNAUTHENTICATED),
        "garbage": ("garbage", Reason.UNAUTHENTICATED),
        "expired": (short.token, Reason.TOKEN_EXPIRED),
        "revoked": (revoked.token, Reason.TOKEN_REVOKED),
        "foreign key": (sign_token(claims, SigningKey.generate()), Reason.UNAUTHENTICATED),
        "foreign key under our key's name": (sign_token(claims, SigningKey.generate(kid)), Reason.UNAUTHENTICATED),
        "unsigned": (unsigned, Reason.UNAUTHENTICATED),
        "changed": (deployment.up.token[:-6] + "AAAAAA", Reason.UNAUTHENTICATED),
        "service credential": (deployment.key("memory").mint(), Reason.UNAUTHENTICATED),
    }
    for name in ("expired", "revoked"):
        token, reason = found[name]
        assert token is not None
        for service in SERVICES:
            eventually(
                lambda at=service, held=token, why=reason: deployment.reason(at, bearer(held)) is why,
                5,
                f"{name} at {service}",
            )
    return found


@pytest.fixture(scope="module")
def forged_credentials(deployment: Deployment) -> dict[str, str]:
    """Service credentials that nothing accepts."""
    real = deployment.key("memory")
    now_s = datetime.now(UTC).timestamp()
    in_anothers_name = {"iss": "svc:gateway", "sub": "svc:gateway", "aud": "loom-internal", "iat": now_s}
    return {
        "empty": "",
        "garbage": "garbage",
        "own key under a real key's name": ServiceKey("memory", SigningKey.generate(real.signing_key.kid)).mint(),
        "own key": ServiceKey("memory", SigningKey.generate("svc:memory#1")).mint(),
        "another audience": real.mint("loom"),
        "a caller's token": deployment.up.token,
        "ended": deployment.key("memory", FakeClock(datetime.now(UTC) - timedelta(hours=1))).mint(),
        "in another service's name": sign_payload({**in_anothers_name, "exp": now_s + 60}, real.signing_key),
        "of a life too long": sign_payload(
            {"iss": "svc:memory", "sub": "svc:memory", "aud": "loom-internal", "iat": now_s, "exp": now_s + 86_400},
            real.signing_key,
        ),
    }


def test_each_service_is_a_process_and_memories_are_stored_found_and_versioned(deployment: Deployment) -> None:
    up = deployment.up
    assert {"gateway", "embedding", "llm", "insights", "assistant", "memory"} < set(children(up.process.pid))
    up.call("memory.set", {"key": "tea", "value": "Ana drinks black coffee"})
    assert up.call("memory.set", {"key": "tea", "value": "Ana drinks green tea"})["version"] == 2
    for mode, query in (("lexical", "green"), ("vector", "what does Ana like to drink?"), ("hybrid", "tea")):
        hits = up.call("memory.search", {"query": query, "search_mode": mode})["hits"]
        assert hits[0]["memory"]["key"] == "tea", mode
    versions = up.call("memory.history", {"key": "tea"})["versions"]
    assert [(old["version"], old["value"]) for old in versions] == [
        (2, "Ana drinks green tea"),
        (1, "Ana drinks black coffee"),
    ]


@pytest.mark.parametrize("service", SERVICES)
def test_every_port_refuses_every_token_that_is_not_good(
    deployment: Deployment, refused_tokens: dict[str, tuple[str | None, Reason]], service: str
) -> None:
    assert deployment.reason(service, bearer(deployment.up.token)) is None
    found = {
        name: deployment.reason(service, () if token is None else bearer(token))
        for name, (token, _) in refused_tokens.items()
    }
    assert found == {name: reason for name, (_, reason) in refused_tokens.items()}


def test_the_gateway_refuses_every_token_that_is_not_good(
    deployment: Deployment, refused_tokens: dict[str, tuple[str | None, Reason]]
) -> None:
    found = {
        name: deployment.over_http({} if token is None else {"Authorization": f"Bearer {token}"})
        for name, (token, _) in refused_tokens.items()
    }
    assert found == {name: reason for name, (_, reason) in refused_tokens.items()}


@pytest.mark.parametrize("service", SERVICES)
def test_every_port_refuses_forged_service_credentials_alone_and_beside_a_good_token(
    deployment: Deployment, forged_credentials: dict[str, str], service: str
) -> None:
    assert deployment.reason(service, credential(deployment.key("memory").mint())) is None
    for name, forged in forged_credentials.items():
        for metadata in (credential(forged), (*bearer(deployment.up.token), *credential(forged))):
            assert deployment.reason(service, metadata) is Reason.UNAUTHENTICATED, name


@pytest.mark.parametrize("spec", INTERNAL_OPS, ids=lambda spec: spec.method)
def test_operations_between_services_take_no_callers_token_and_no_forged_credential(
    deployment: Deployment, forged_credentials: dict[str, str], spec: Any
) -> None:
    admin = deployment.token(org_admin=True).token
    service = "insights" if spec.owner == "common" else spec.owner  # every service has those
    assert deployment.reason(service, (), spec.method) is Reason.UNAUTHENTICATED
    for token in (admin, deployment.up.token):
        assert deployment.reason(service, bearer(token), spec.method) is Reason.AUTH_INSUFFICIENT
    for name, forged in forged_credentials.items():
        metadata = (*bearer(admin), *credential(forged))
        assert deployment.reason(service, metadata, spec.method) is Reason.UNAUTHENTICATED, name


def test_the_gateway_takes_no_service_credential_from_outside(deployment: Deployment) -> None:
    real = deployment.key("operator").mint()
    assert deployment.over_http({"x-loom-service": real}) is Reason.UNAUTHENTICATED
    viewer = deployment.token("viewer").token
    headers = {"Authorization": f"Bearer {viewer}", "x-loom-service": real}
    answer = httpx.post(
        f"{deployment.up.http_url}/v1/namespace.create", json={"name": "forged"}, headers=headers, trust_env=False
    )
    assert answer.json()["error"]["code"] == "AUTH_INSUFFICIENT"


def test_a_forged_attribution_beside_a_callers_token_has_no_effect(deployment: Deployment) -> None:
    up = deployment.up
    subject = f"sa:{new_id()}"
    token = deployment.token(subject=subject).token
    forged = Attribution(org="victim", namespace="secrets", subject="human:victim", feature="memory.search")
    call = deployment.channels["memory"].unary_unary(
        "/loom.memory.v1.MemoryService/SetMemory",
        request_serializer=memory_pb2.SetMemoryRequest.SerializeToString,
        response_deserializer=memory_pb2.SetMemoryResponse.FromString,
    )
    for number, sent in enumerate((forged.to_bytes(), b"\xff no attribution")):
        request = memory_pb2.SetMemoryRequest(key=f"attributed-{number}", value=f"Ana reads book {number}")
        answer = call(request, metadata=bearer(token, ("loom-attribution-bin", sent)), timeout=20)
        assert (answer.namespace, answer.stored) == ("default", True)

    def spent() -> dict[str, Any]:
        rows = up.call("usage.summary", {"group_by": "subject"})["rows"]
        return {row["group"]: row for row in rows}

    # The ledger is written in the background.
    eventually(lambda: spent().get(subject, {}).get("call_count") == 2, 20, "both calls in the ledger")
    assert spent()[subject]["embedding_tokens"] > 0
    assert "human:victim" not in spent()


@pytest.mark.parametrize("kind", ["token", "subject", "session"])
def test_what_is_revoked_is_refused_on_every_port_within_two_seconds(deployment: Deployment, kind: str) -> None:
    if kind == "session":
        sid, token = deployment.token_of_session("ann@acme.org")
        ended = {"session": sid}
    else:
        made = deployment.token(subject="sa:ended")
        token, ended = made.token, {"token_id": made.token_id} if kind == "token" else {"subject": "sa:ended"}
    metadata, headers = bearer(token), {"Authorization": f"Bearer {token}"}
    assert [deployment.reason(service, metadata) for service in SERVICES] == [None] * len(SERVICES)
    assert deployment.over_http(headers) is None
    open_ports = set(SERVICES)
    deployment.revoke(**ended)

    def all_refuse() -> bool:
        open_ports.difference_update(
            {port for port in open_ports if deployment.reason(port, metadata) is Reason.TOKEN_REVOKED}
        )
        return not open_ports and deployment.over_http(headers) is Reason.TOKEN_REVOKED

    took_s = eventually(all_refuse, REVOKED_WITHIN_S, f"refused by all; not yet by {open_ports}")
    assert took_s < REVOKED_WITHIN_S


@pytest.mark.parametrize("name", ["memory", "endpoint"])
def test_a_killed_process_comes_back_and_nothing_is_lost(deployment: Deployment, name: str) -> None:
    up = deployment.up
    key = f"kept-over-{name}"
    up.call("memory.set", {"key": key, "value": f"Bo keeps bees over the end of {name}"})
    killed = children(up.process.pid)[name]
    os.kill(killed, signal.SIGKILL)
    eventually(lambda: children(up.process.pid).get(name, killed) != killed, 30, "another process")
    eventually(lambda: up.post("memory.get", {"key": key}).status_code == 200, 60, "an answer")
    assert up.call("memory.get", {"key": key})["memory"]["value"].startswith("Bo keeps bees")
    assert up.call("memory.search", {"query": "bees"})["hits"][0]["memory"]["key"].startswith("kept-over-")
    assert up.call("memory.set", {"key": key, "value": "Bo sold the bees"})["version"] == 2
    state = json.loads(run_loom("status", "--json", "--data-dir", up.data_dir).stdout)
    assert state["state"] == "ok"


# What each process answers over HTTP; the assistant of this build refuses by itself, which is an answer too.
ANSWERED_BY: dict[str, tuple[str, dict[str, Any]]] = {
    "memory": ("memory.get", {"key": "kept"}),
    "embedding": ("calibration.get", {}),
    "insights": ("usage.summary", {}),
    "assistant": ("assistant.ask", {"question": "who keeps bees?"}),
}
FAST_S = 5.0


class Load:
    """Calls one operation of each process again and again, and keeps what became of every call."""

    def __init__(self, up: UpProcess) -> None:
        self._up = up
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(name,)) for name in ANSWERED_BY]
        self.answers: dict[str, list[tuple[float, float, str]]] = {name: [] for name in ANSWERED_BY}
        """By process: when the call began, how long it took, and the error's code; empty for an answer."""

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def since(self, name: str, began: float) -> list[str]:
        return [code for at, _, code in list(self.answers[name]) if at >= began]

    def _run(self, name: str) -> None:
        op, body = ANSWERED_BY[name]
        headers = {"Authorization": f"Bearer {self._up.token}"}
        with httpx.Client(base_url=self._up.http_url, headers=headers, timeout=60, trust_env=False) as client:
            while not self._ended.wait(0.02):
                began = time.monotonic()
                try:
                    answer = client.post(f"/v1/{op}", json=body)
                    code = "" if answer.status_code == 200 else str(answer.json()["error"]["code"])
                except httpx.TransportError:
                    code = "no connection"
                found = "" if code == "ASSISTANT_UNAVAILABLE" else code
                self.answers[name].append((began, time.monotonic() - began, found))


def test_each_process_that_is_killed_under_load_takes_its_own_operations_along_and_no_others(
    deployment: Deployment,
) -> None:
    up = deployment.up
    up.call("memory.set", {"key": "kept", "value": "Bo keeps bees"})
    killed_at: dict[str, float] = {}
    with Load(up) as load:
        eventually(lambda: all(load.answers.values()), 10, "calls of every process")
        for name in ("embedding", "insights", "assistant", "llm"):
            down = _killed(up, name)
            killed_at[name] = time.monotonic()
            if name in ANSWERED_BY:
                eventually(
                    lambda name=name: "BACKEND_UNAVAILABLE" in load.since(name, killed_at[name]),
                    10,
                    f"refusal by {name}",
                )
            eventually(lambda name=name: _named(up, name), 10, f"health that names {name}")
            assert httpx.get(f"{up.http_url}/v1/health/ready", trust_env=False).status_code == 200
            eventually(
                lambda name=name, down=down: children(up.process.pid).get(name, down) != down, 30, "a new process"
            )
        for name in killed_at:
            eventually(lambda name=name: not _named(up, name), 60, f"{name} ready again")
        for name in ANSWERED_BY:
            mark = time.monotonic()
            eventually(lambda name=name, mark=mark: "" in load.since(name, mark), 20, f"answers of {name} again")
    for name, answers in load.answers.items():
        codes = {code for _, _, code in answers if code}
        assert codes <= ({"BACKEND_UNAVAILABLE"} if name in killed_at else set()), name
        slow = [took for _, took, code in answers if code and took > FAST_S]
        assert slow == [], f"{name} refused late"


def test_without_the_gateway_services_go_on_for_those_they_know_and_it_comes_back(deployment: Deployment) -> None:
    up = deployment.up
    down = _killed(up, "gateway")
    metadata = bearer(up.token)
    assert deployment.reason("memory", metadata) is None
    eventually(lambda: children(up.process.pid).get("gateway", down) != down, 30, "another gateway")
    eventually(lambda: _answers(up), 60, "HTTP again")
    up.call("memory.get", {"key": "kept"})


def _killed(up: UpProcess, name: str) -> int:
    pid = children(up.process.pid)[name]
    os.kill(pid, signal.SIGKILL)
    return pid


def _named(up: UpProcess, name: str) -> bool:
    """Returns whether the gateway's health says that a service is out, in its checks and its problems alike."""
    health = httpx.get(f"{up.http_url}/v1/health", timeout=20, trust_env=False).json()
    named = any(found["service"] == name and found["severity"] == "error" for found in health["problems"])
    assert named is not health["checks"][name]["ok"], health
    return named


def _answers(up: UpProcess) -> bool:
    try:
        return httpx.get(f"{up.http_url}/v1/health/ready", timeout=20, trust_env=False).status_code == 200
    except httpx.TransportError:
        return False


def test_no_log_error_or_metric_shows_a_secret_after_all_of_this(deployment: Deployment) -> None:
    up = deployment.up
    logged, printed = up.log.read_text(), up.printed.read_text()
    assert len(deployment.refusals) > 100
    assert "UNAUTHENTICATED" in logged
    metrics = httpx.get(f"{up.http_url}/metrics", trust_env=False).text
    assert "loom_" in metrics
    for text in (logged, metrics, *deployment.refusals):
        assert shown_secrets(text, up.data_dir) == []
    # The banner shows the start's own token, once for people and once in a command to copy; nothing else does.
    assert shown_secrets(printed, up.data_dir, but=[up.token]) == []


def all_ended(pids: dict[str, int]) -> bool:
    return not any(is_running(pid) for pid in pids.values())


def test_a_killed_parent_leaves_no_process_and_sigterm_stops_the_next_start_with_exit_0(
    deployment: Deployment,
) -> None:
    up = deployment.up
    up.call("memory.set", {"key": "last", "value": "Chi plays the violin"})
    made = children(up.process.pid)
    assert len(made) == 7
    up.process.kill()
    up.process.wait()
    eventually(lambda: all_ended(made), 30, "the end of every process")
    with loom_up(up.data_dir, "--processes") as again:
        assert again.call("memory.search", {"query": "who plays an instrument?"})["hits"][0]["memory"]["key"] == "last"
        made = children(again.process.pid)
        assert again.stop(signal.SIGTERM) == 0
        assert all_ended(made)
    assert read_run(up.data_dir) is None
