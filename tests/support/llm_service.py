"""The llm service as its process runs it, over a stand-in for its providers, and calls as memory makes them."""

from dataclasses import dataclass
from typing import Any

from support.grpc import Deployment
from support.providers import ProviderStandIn

from loom_common.attribution import ATTRIBUTION_KEY, Attribution
from loom_common.clickhouse import ClickHouse
from loom_llm.settings import LlmSettings

FOR_ACME = Attribution(org="acme", feature="memory.ask")


@dataclass(frozen=True, slots=True)
class Rig:
    """What a test needs to open the service and to call it."""

    deployment: Deployment
    clickhouse: ClickHouse
    stand_in: ProviderStandIn
    identity: str
    """Where identity listens."""

    def settings(self, **variables: Any) -> LlmSettings:
        """Returns settings by the names of their variables."""
        given: dict[str, Any] = {
            "LOOM_SERVICE_KEY": self.deployment.keys / "llm.jwk",
            "LOOM_SERVICE_JWKS": self.deployment.keys / "services.jwks",
            "LOOM_LLM_LISTEN": "127.0.0.1:0",
            "LOOM_IDENTITY_ADDR": self.identity,
            "LOOM_OPENAI_BASE_URL": self.stand_in.openai_url,
            "LOOM_ANTHROPIC_BASE_URL": self.stand_in.anthropic_url,
            "LOOM_LLM_RETRY_MAX_WAIT_S": 0.01,
            # No insights runs here to ask what was spent.
            "LOOM_DEFAULT_DAILY_COST_CAP_USD": "none",
            **variables,
        }
        return LlmSettings(**given)

    def metadata(self, attribution: Attribution | None = FOR_ACME) -> tuple[tuple[str, str | bytes], ...]:
        """Returns the metadata of a call of memory's."""
        sent = () if attribution is None else ((ATTRIBUTION_KEY, attribution.to_bytes()),)
        return (self.deployment.credential("memory"), *sent)
