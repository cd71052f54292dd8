"""Spans of calls."""

from collections.abc import AsyncIterator

import grpc
import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from support.grpc import MemoryStandIn

from loom.memory.v1 import memory_pb2 as pb
from loom.memory.v1 import memory_pb2_grpc as pb_grpc
from loom_common.errors import Conflict
from loom_common.interceptors.errors import ErrorInterceptor
from loom_common.interceptors.rpc import Chain
from loom_common.interceptors.trace import TraceInterceptor

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
Traced = tuple["pb_grpc.MemoryServiceAsyncStub", MemoryStandIn, InMemorySpanExporter]


@pytest.fixture
async def traced() -> AsyncIterator[Traced]:
    exporter, provider, servicer = InMemorySpanExporter(), TracerProvider(), MemoryStandIn()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    chain = Chain([TraceInterceptor(provider.get_tracer("test")), ErrorInterceptor()])
    server = grpc.aio.server(interceptors=[chain])
    pb_grpc.add_MemoryServiceServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield pb_grpc.MemoryServiceStub(channel), servicer, exporter
    await server.stop(0)
    provider.shutdown()


def only(exporter: InMemorySpanExporter) -> ReadableSpan:
    (span,) = exporter.get_finished_spans()
    return span


async def test_a_span_is_the_child_of_its_callers(traced: Traced) -> None:
    stub, _, exporter = traced
    await stub.GetMemory(pb.GetMemoryRequest(key="k"), metadata=(("traceparent", f"00-{TRACE}-{PARENT}-01"),))
    span = only(exporter)
    assert span.context is not None
    assert span.parent is not None
    assert (f"{span.context.trace_id:032x}", f"{span.parent.span_id:016x}") == (TRACE, PARENT)
    assert (span.name, span.kind) == ("loom.memory.v1.MemoryService/GetMemory", SpanKind.SERVER)
    assert span.attributes is not None
    assert (span.attributes["loom.op"], span.attributes["rpc.grpc.status_code"]) == ("memory.get", 0)


@pytest.mark.parametrize(
    ("error", "number", "reason", "status"),
    [
        (Conflict("no"), 10, "CONFLICT", StatusCode.UNSET),
        (RuntimeError("secret"), 13, "INTERNAL", StatusCode.ERROR),
    ],
)
async def test_a_span_says_how_its_call_ended(
    traced: Traced, error: Exception, number: int, reason: str, status: StatusCode
) -> None:
    stub, servicer, exporter = traced
    servicer.error = error
    with pytest.raises(grpc.aio.AioRpcError):
        await stub.GetMemory(pb.GetMemoryRequest(key="k"))
    span = only(exporter)
    assert span.attributes is not None
    assert (span.attributes["rpc.grpc.status_code"], span.attributes["loom.reason"]) == (number, reason)
    assert span.status.status_code is status
    assert "secret" not in span.to_json()
