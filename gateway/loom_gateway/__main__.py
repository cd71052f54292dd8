"""Starts the gateway as a process of its own: `python -m loom_gateway`."""

from loom_common.process import run
from loom_gateway.settings import GatewaySettings
from loom_gateway.wiring import open_service

if __name__ == "__main__":
    run(open_service, GatewaySettings)
