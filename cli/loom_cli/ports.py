"""Which ports `loom up` takes: the documented ones where they are free, else any."""

import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from loom_cli.console import CommandError

DEFAULT_HTTP_PORT: Final = 8080
LOOPBACK: Final = "127.0.0.1"


def choose(http_port: int) -> dict[str, str]:
    """Returns the listening address of `gateway` (HTTP) and of each service (gRPC).

    The documented gRPC ports are taken when the HTTP port is the documented one and all of them are free; else free
    ones, so that a second Loom can run beside the first.

    Raises:
        CommandError: The HTTP port is taken.
    """
    with _held(http_port) as socket_:
        if socket_ is None:
            raise CommandError(f"port {http_port} is taken; stop what listens there or choose another with --port")
        http = socket_.getsockname()[1]
        from loom_common.settings import Service  # here: settings take longer to load than `loom --help` may

        documented = {service.value: service.default_port for service in Service}
        ports = (
            documented if http_port == DEFAULT_HTTP_PORT and _all_free(documented.values()) else _free(list(documented))
        )
    return {"gateway": f"{LOOPBACK}:{http}", **{name: f"{LOOPBACK}:{port}" for name, port in ports.items()}}


def free_port() -> int:
    """Returns a port that nobody listens on."""
    with _held(0) as socket_:
        assert socket_ is not None  # port 0 is always given
        return int(socket_.getsockname()[1])


def _all_free(ports: Iterable[int]) -> bool:
    return all(_is_free(port) for port in ports)


def _is_free(port: int) -> bool:
    with _held(port) as socket_:
        return socket_ is not None


def _free(names: list[str]) -> dict[str, int]:
    # All are held at once, so that no two get the same port.
    held = [socket.create_server((LOOPBACK, 0)) for _ in names]
    try:
        return {name: int(socket_.getsockname()[1]) for name, socket_ in zip(names, held, strict=True)}
    finally:
        for socket_ in held:
            socket_.close()


@contextmanager
def _held(port: int) -> Iterator[socket.socket | None]:
    try:
        socket_ = socket.create_server((LOOPBACK, port))
    except OSError:
        yield None
        return
    try:
        yield socket_
    finally:
        socket_.close()
