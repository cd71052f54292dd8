"""Calls to models in a whole Loom over providers: whom they are for, who switches them off, which reads make none."""

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import pytest
from support.faults import GOOD
from support.providers import OPENAI_CHAT, TEST_KEY, ProviderStandIn, Received
from support.up import UpProcess, environment, eventually, loom_up, run_loom

from loom_common.errors import Reason
from loom_gateway.contract.catalogue import Catalogue

READS: Final = sorted(name for name, op in Catalogue().items() if op.spec.read_only)
REFRESH_S: Final = 0.5


@contextmanager
def provider_in_a_thread() -> Iterator[ProviderStandIn]:
    """Runs a stand-in beside a test that blocks."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="provider")
    thread.start()
    provider = ProviderStandIn()
    running = provider.running()
    asyncio.run_coroutine_threadsafe(running.__aenter__(), loop).result(10)
    try:
        yield provider
    finally:
        asyncio.run_coroutine_threadsafe(running.__aexit__(None, None, None), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


@dataclass
class Rig:
    up: UpProcess
    provider: ProviderStandIn
    admin: str

    def completions(self) -> list[Received]:
        return [request for request in self.provider.requests if request.path == OPENAI_CHAT]

    def reason(self, op: str, body: dict[str, Any]) -> str:
        """Returns why a call is refused; empty where it is not."""
        answer = self.up.post(op, body)
        return "" if answer.status_code == 200 else str(answer.json()["error"]["code"])


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with provider_in_a_thread() as provider:
        env = environment(
            LOOM_READS_LLM_FREE="true",
            LOOM_LLM_PROVIDER="openai",
            LOOM_EMBEDDING_MODEL="text-embedding-3-small",
            LOOM_EMBEDDING_DIM="16",
            OPENAI_API_KEY=TEST_KEY,
            LOOM_OPENAI_BASE_URL=provider.openai_url,
            LOOM_ADAPTIVE_THRESHOLDS="false",
            LOOM_MODEL_CALLS_POLICY_REFRESH_SECONDS=str(REFRESH_S),
            LOOM_INFERENCE_CUSTOMER_HEADER="x-customer",
            LOOM_INFERENCE_CUSTOMER_FORMAT="cell/{org}",
            LOOM_INFERENCE_FEATURE_HEADER="x-feature",
            LOOM_INFERENCE_IDENTITY_HEADERS_JSON='{"x-subject": "{subject}"}',
            LOOM_INFERENCE_GATEWAY_HOSTS="127.0.0.1",
        )
        with loom_up(tmp_path_factory.mktemp("calls") / "data", env=env) as up:
            words = ("--namespace", "default", "--role", "admin", "--org-admin", "--json", "--data-dir", up.data_dir)
            made = run_loom("token", "create", *words)
            assert made.returncode == 0, made.stderr
            yield Rig(up, provider, str(json.loads(made.stdout)["token"]))


def test_requests_say_whose_they_are_and_the_look_at_start_is_the_deployments(rig: Rig) -> None:
    rig.up.call("memory.set", {"key": "k", "value": "Bo said that tea is better in the morning"})
    rig.up.call("memory.search", {"query": "tea"})
    org = rig.up.call("org.get_model_calls", token=rig.admin)["model_calls"]["org"]
    named = [
        (headers.get("x-customer"), headers.get("x-feature"), bool(headers.get("x-subject")))
        for headers in (request.headers for request in rig.provider.requests)
    ]
    assert ("_system", "system.embedder_probe", False) in named
    assert (f"cell/{org}", "memory.set", True) in named
    assert (f"cell/{org}", "memory.search", True) in named
    assert {customer for customer, _, _ in named} == {"_system", f"cell/{org}"}


@pytest.mark.parametrize("op", READS)
def test_a_read_calls_no_model_that_completes_text_while_reads_are_llm_free(rig: Rig, op: str) -> None:
    answer = rig.up.post(op, GOOD.get(op), token=rig.admin)
    refused = answer.status_code == 409 and answer.json()["error"]["code"] == Reason.READS_LLM_FREE
    # Anything else, such as a request that lacks a field, would prove nothing.
    assert answer.status_code == 200 or refused, answer.text
    assert rig.completions() == []


def test_an_organisation_that_is_switched_off_stores_without_vectors_and_searches_nothing(rig: Rig) -> None:
    switched = rig.up.call("org.set_model_calls", {"enabled": False}, token=rig.admin)
    assert switched["changed"]
    search = {"query": "tea"}
    off, on = Reason.MODEL_CALLS_OFF.value, ""
    eventually(lambda: rig.reason("memory.search", search) == off, REFRESH_S + 5, "the switch holds")
    before = len(rig.provider.requests)
    # A query whose vector was cached before is refused as well, and a write stands without one.
    assert rig.reason("memory.search", search) == off
    assert rig.up.call("memory.set", {"key": "off", "value": "written while models are off"})["stored"]
    assert rig.up.call("memory.get", {"key": "off"})["found"]
    assert len(rig.provider.requests) == before

    rig.up.call("org.set_model_calls", {"enabled": True}, token=rig.admin)
    eventually(lambda: rig.reason("memory.search", search) == on, REFRESH_S + 5, "the switch is off again")
