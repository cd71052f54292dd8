"""What callers, logs, spans and the ledger are never shown, after calls of every kind and every refusal."""

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from support.gateway import claims, raising, running_gateway
from support.leaks import private_keys, shown_tokens
from support.logs import captured_logs

from loom_common.auth.claims import Role
from loom_common.auth.tokens import SigningKey, sign_token
from loom_common.errors import BackendUnavailable, Conflict
from loom_gateway.calls import dispatch
from loom_gateway.contract.catalogue import Catalogue
from loom_gateway.openapi.examples import example_of

KEY = "idempotency-key-of-a-caller"
TEXT = "a text that is a memory's"
DEFECT = "a-defect-that-quotes-its-caller"


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """The gateway's spans; what is set for the whole process stays as it is."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(dispatch, "_tracer", provider.get_tracer("test"))
    yield exporter
    provider.shutdown()


def shown(span: ReadableSpan) -> str:
    events = [(event.name, dict(event.attributes or {})) for event in span.events]
    return f"{span.name} {dict(span.attributes or {})} {events} {span.status.description}"


async def test_nothing_that_anybody_is_shown_holds_a_token_a_key_or_a_text(
    tmp_path: Path, spans: InMemorySpanExporter
) -> None:
    answers: list[httpx.Response] = []
    with captured_logs() as lines:
        rows = await _call_all(tmp_path, answers)
    logged = lines.getvalue()
    told = "\n".join(f"{answer.headers} {json.dumps(answer.text)}" for answer in answers)
    traced = "\n".join(shown(span) for span in spans.get_finished_spans())
    assert len(answers) > 100
    assert len(spans.get_finished_spans()) > 50
    assert logged.count('"event": "call"') > 100
    assert "Traceback" in logged
    assert {answer.status_code for answer in answers} >= {200, 400, 401, 403, 404, 409, 500, 503}
    for text in (told, traced, rows, logged):
        assert shown_tokens(text) == []
        assert KEY not in text
        assert not [name for name, key in private_keys(tmp_path / "keys").items() if key in text]
    # What was stored may be read again by those who may. Of a defect the log keeps what it says, and nobody is told.
    refused = "\n".join(answer.text for answer in answers if answer.status_code != 200)
    for text in (refused, traced, rows, "\n".join(line for line in logged.splitlines() if DEFECT not in line)):
        assert TEXT not in text
    assert DEFECT not in told


async def _call_all(tmp_path: Path, answers: list[httpx.Response]) -> str:
    """Makes calls of every kind, puts the answers into the list, and returns the ledger's rows."""
    async with running_gateway(tmp_path) as gateway:
        good, admin = gateway.token(), gateway.token(org_admin=True)
        foreign = sign_token(claims(Role.WRITER), SigningKey.generate())
        expired = gateway.token(exp=1.0)
        headers = {"Idempotency-Key": KEY}
        async with gateway.client(None) as client:

            async def call(op: str, body: object, token: str, **more: str) -> None:
                authorization = {"Authorization": f"Bearer {token}", **headers, **more}
                answers.append(await client.post(f"/v1/{op}", json=body, headers=authorization))

            for token in (good, admin, foreign, expired, f"{good[:-4]}AAAA", "x" * 40):
                for op in Catalogue().values():
                    await call(op.name, example_of(op.spec), token)
                await call("no.such", {}, token)
                await call("memory.set", {"value": TEXT, "secret": TEXT}, token)
                await call("memory.set", {"value": TEXT}, token, Origin="https://evil.example")
            answers.append(await client.get("/v1/health", headers={"Authorization": f"Bearer {good}"}))
            answers.append(await client.post(f"/v1/memory.get?token={good}", json={"key": "k"}))
            for error in (RuntimeError(f"{DEFECT} {TEXT} {good}"), Conflict("no"), BackendUnavailable("away")):
                gateway.services.replies["memory.set"] = raising(error)  # type: ignore[arg-type]  # a defect raises anything
                await call("memory.set", {"value": TEXT}, good)
        return "\n".join(str(entry.row) for entry in gateway.ledger.entries)
