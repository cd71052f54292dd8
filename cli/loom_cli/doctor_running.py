"""`loom doctor`: the Loom that runs, its services, its clock and the caller's token."""

import base64
import json
import socket
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Final

import httpx

from loom_cli import run_file
from loom_cli.console import CommandError
from loom_cli.doctor_findings import Finding, ok, problem, warning
from loom_cli.settings import ClientSettings
from loom_common.settings import SettingsError

GATEWAY: Final = "gateway"
SERVICES: Final = "services"
TOKENS: Final = "tokens"
CLOCKS: Final = "clocks"
PORTS: Final = "ports"

# Source: chosen. Health waits two seconds for each of its own probes.
_TIMEOUT_S: Final = 10.0
_CONNECT_S: Final = 1.0
# A `Date` header has whole seconds. Tokens live for minutes, so that more than this ends some of them early.
_CLOCK_WARNING_S: Final = 5.0
_CLOCK_PROBLEM_S: Final = 60.0
_EXPIRES_SOON_S: Final = 3 * 86_400.0
_HOW_TO_MAKE: Final = "Make one with `loom token create`, or start Loom again for a new one in run.json."


@dataclass(frozen=True, slots=True)
class Target:
    """The Loom to look at; without an address none runs."""

    http_url: str = ""
    token: str = field(default="", repr=False)
    grpc: Mapping[str, str] = field(default_factory=dict)
    """Addresses of its services, where it runs on the data directory."""
    fault: str = ""
    """Why it could not be told where it runs."""

    @property
    def here(self) -> bool:
        """Whether it runs on the data directory of this machine."""
        return bool(self.grpc)


def target(directory: Path) -> Target:
    """Returns where Loom runs: what `LOOM_BASE_URL` names, else what `run.json` says."""
    try:
        settings = ClientSettings.load()
        url, token = settings.base_url, settings.api_key.get_secret_value()
    except SettingsError:
        url, token = "", ""  # told among the settings
    try:
        run = run_file.read(directory)
    except CommandError as error:
        return Target(url, token, fault=str(error))
    if run is None or not run_file.answers(run):
        return Target(url, token)
    return Target(url or run.http_url, token or run.token, run.grpc)


def examine(target: Target) -> Iterator[Finding]:
    """Yields how the Loom fares that runs; or that none does."""
    if target.fault:
        yield problem(GATEWAY, target.fault, "Stop Loom, remove the file and start it again.")
    if not target.http_url:
        yield warning(GATEWAY, "no Loom runs on this data directory", "Start it with `loom up`.")
        return
    yield from _ports(target)
    with httpx.Client(base_url=target.http_url, timeout=_TIMEOUT_S, trust_env=False) as client:
        try:
            answer = client.get("/v1/health")
            health: object = answer.json()
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            yield problem(
                GATEWAY,
                f"{target.http_url} does not answer ({type(error).__name__})",
                "See whether the gateway's process runs and what its log says.",
            )
            return
        yield from _health(target.http_url, health)
        yield from _clock(answer.headers.get("date", ""))
        yield from _token(client, target.token)


def _ports(target: Target) -> Iterator[Finding]:
    closed = [f"{name} at {address}" for name, address in target.grpc.items() if not _connects(address)]
    if closed:
        yield problem(PORTS, f"nothing listens for {', '.join(closed)}", "Stop Loom and start it again; see its log.")
    elif target.grpc:
        yield ok(PORTS, "every service listens where run.json says")


def _health(url: str, health: object) -> Iterator[Finding]:
    if not isinstance(health, dict) or not isinstance(health.get("checks"), dict):
        yield problem(GATEWAY, f"{url} is no Loom: it has no health to show", "Set LOOM_BASE_URL to the gateway.")
        return
    state, version = health.get("status"), health.get("version")
    if health.get("ready"):
        yield ok(GATEWAY, f"{url} is {state}, version {version}")
    else:
        yield problem(GATEWAY, f"{url} is not ready ({state})", "What follows says why.")
    ready = [name for name, check in health["checks"].items() if check.get("ok")]
    if ready:
        yield ok(SERVICES, f"ready: {', '.join(ready)}")
    for found in health.get("problems", []):
        make = problem if found.get("severity") == "error" else warning
        yield make(SERVICES, f"{found.get('service')}: {found.get('message')}", f"Code {found.get('code')}.")


def _clock(date: str) -> Iterator[Finding]:
    try:
        apart_s = abs(parsedate_to_datetime(date).timestamp() - time.time())
    except (TypeError, ValueError):
        return  # a proxy took the header
    if apart_s < _CLOCK_WARNING_S:
        yield ok(CLOCKS, "this machine and the gateway agree")
        return
    make = problem if apart_s > _CLOCK_PROBLEM_S else warning
    yield make(
        CLOCKS,
        f"this machine and the gateway are {apart_s:.0f} s apart",
        "Let both follow a time server: tokens and service credentials are refused by clocks that differ.",
    )


def _token(client: httpx.Client, token: str) -> Iterator[Finding]:
    if not token:
        yield warning(TOKENS, "LOOM_API_KEY is not set, so no token was tried", _HOW_TO_MAKE)
        return
    headers = {"Authorization": f"Bearer {token}"}
    try:
        answer = client.post("/v1/namespace.list", json={}, headers=headers)
        code = "" if answer.status_code == httpx.codes.OK else str(answer.json()["error"]["code"])
    except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
        yield problem(TOKENS, f"the token could not be tried ({type(error).__name__})", "See the gateway's log.")
        return
    if code:
        yield problem(TOKENS, f"the token is refused: {code}", _HOW_TO_MAKE)
        return
    left_s = _left_s(token)
    if left_s is not None and left_s < _EXPIRES_SOON_S:
        yield warning(TOKENS, f"the token is good and ends in {left_s / 3600:.0f} hours", _HOW_TO_MAKE)
    else:
        yield ok(TOKENS, "the token is good")


def _left_s(token: str) -> float | None:
    """Returns how long a token lives by its own word, which the gateway has verified by now."""
    try:
        payload = token.split(".")[1]
        return float(json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))["exp"]) - time.time()
    except (IndexError, ValueError, KeyError, TypeError):
        return None


def _connects(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), _CONNECT_S):
            return True
    except (OSError, ValueError):
        return False
