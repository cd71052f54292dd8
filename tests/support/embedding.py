"""Remote embedders against the stand-in, which never wait between attempts."""

from collections.abc import Callable

from support.providers import TEST_KEY, ProviderStandIn

from loom_common.providers import ProviderHealth, Retrying, RetryPolicy
from loom_embedding.domain.embedder import ServedModel, Tokens
from loom_embedding.providers.gemini import GeminiApi
from loom_embedding.providers.openai import OpenAIApi
from loom_embedding.providers.remote import RemoteEmbedder, retry_policy
from loom_embedding.providers.tokens import CautiousTokens, Cl100kTokens


class RemoteRig:
    """A remote embedder, what it waited and how its provider fares."""

    def __init__(self, api: OpenAIApi | GeminiApi, dim: int, policy: RetryPolicy) -> None:
        self.api = api
        self.waits: list[float] = []
        self.health = ProviderHealth()
        openai = isinstance(api, OpenAIApi)
        self.served = ServedModel(
            "text-embedding-3-small" if openai else "gemini-embedding-001",
            dim,
            api.provider,
            window_tokens=8191 if openai else 2048,
            special_tokens=0,
            noise_floor=0.3,
        )
        self.tokens: Tokens = Cl100kTokens() if openai else CautiousTokens()
        self.embedder = RemoteEmbedder(
            self.served, api, self.tokens, policy, self.health, retrying=Retrying(policy, sleep=self._wait)
        )

    async def _wait(self, seconds: float) -> None:
        self.waits.append(seconds)


MakeRig = Callable[..., RemoteRig]
"""Makes one of the provider that is named."""


def remote_rig(
    provider: str,
    stand_in: ProviderStandIn,
    *,
    dim: int = 8,
    timeout_s: float = 5.0,
    attempts: int = 3,
    max_wait_s: float = 10.0,
) -> RemoteRig:
    """Returns a remote embedder of one provider against the stand-in; close its `api` in the end."""
    api: OpenAIApi | GeminiApi
    if provider == "openai":
        api = OpenAIApi(
            "text-embedding-3-small",
            dim,
            TEST_KEY,
            base_url=stand_in.openai_url,
            timeout_s=timeout_s,
            connect_timeout_s=timeout_s,
        )
    else:
        api = GeminiApi(
            "gemini-embedding-001",
            dim,
            TEST_KEY,
            base_url=stand_in.gemini_url,
            timeout_s=timeout_s,
            connect_timeout_s=timeout_s,
        )
    return RemoteRig(api, dim, retry_policy(attempts, max_wait_s))
