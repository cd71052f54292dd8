"""What one start consists of: addresses, secrets, and the settings that each service gets."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from loom_cli.keys import Secrets

# Services that seal rows and therefore hold the secret; the others never see it.
_SEALING: Final = frozenset({"gateway", "insights", "assistant"})
_SECRETS: Final = frozenset({"LOOM_JWT_SECRET", "LOOM_JWT_SECRET_PREVIOUS"})

LEDGER_KEEPER: Final = "insights"
"""The service that stops last: each of the others tells it of its last calls while it stops."""


def inherited(service: str) -> dict[str, str]:
    """Returns this process's environment as a child gets it: without the secret where the child does not seal."""
    left_out = frozenset() if service in _SEALING else _SECRETS
    return {name: value for name, value in os.environ.items() if name not in left_out}


@dataclass(frozen=True, slots=True)
class StartPlan:
    """Everything that a start decided before anything runs."""

    data_dir: Path
    addresses: Mapping[str, str]
    """Listening address of `gateway` (HTTP) and of each service (gRPC), `identity` among them."""
    secrets: Secrets
    clickhouse_url: str

    @property
    def http_url(self) -> str:
        """Address of the gateway for people and programs."""
        return f"http://{self.addresses['gateway']}"

    @property
    def mcp_url(self) -> str:
        """Address for MCP clients."""
        return f"{self.http_url}/mcp"

    @property
    def grpc(self) -> dict[str, str]:
        """Addresses of gRPC, by service."""
        return {name: address for name, address in self.addresses.items() if name != "gateway"}

    def variables(self, service: str) -> dict[str, str]:
        """Returns the `LOOM_*` variables that this start decides for one service."""
        found = {
            "LOOM_DATA_DIR": str(self.data_dir),
            "LOOM_CLICKHOUSE_URL": self.clickhouse_url,
            "LOOM_SERVICE_KEY": str(self.secrets.key_of(service)),
            "LOOM_SERVICE_JWKS": str(self.secrets.keyring),
            "LOOM_GATEWAY_LISTEN": self.addresses["gateway"],
        }
        for name, address in self.grpc.items():
            found[f"LOOM_{name.upper()}_ADDR"] = address
            found[f"LOOM_{name.upper()}_LISTEN"] = address
        if service in _SEALING:
            found["LOOM_JWT_SECRET"] = self.secrets.jwt_secret
        return found
