"""A collector that keeps what it is sent, as bytes."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc


@dataclass
class Collected:
    """What was exported to `endpoint`: by the path of the method, such as `/opentelemetry...TraceService/Export`."""

    endpoint: str = ""
    sent: dict[str, list[bytes]] = field(default_factory=dict)

    def text(self) -> str:
        """Returns all of it as text; names and values in it are UTF-8 between the bytes of the encoding."""
        return "\n".join(data.decode("utf-8", "replace") for parts in self.sent.values() for data in parts)


class _Anything(grpc.GenericRpcHandler):
    def __init__(self, collected: Collected) -> None:
        self._collected = collected

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:  # Any: a handler of every message
        method = str(handler_call_details.method)

        def keep(request: bytes, _context: object) -> bytes:
            self._collected.sent.setdefault(method, []).append(request)
            return b""

        return grpc.unary_unary_rpc_method_handler(keep)


@contextmanager
def collector() -> Iterator[Collected]:
    """Runs one on a free port."""
    collected = Collected()
    server = grpc.server(ThreadPoolExecutor(max_workers=2))
    server.add_generic_rpc_handlers((_Anything(collected),))
    collected.endpoint = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield collected
    finally:
        server.stop(None).wait()
