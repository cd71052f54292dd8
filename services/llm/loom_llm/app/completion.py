"""Completes a prompt: the gates first, then the provider, then what it cost."""

from typing import Final

import structlog

from loom_common import call, telemetry
from loom_common.attribution import Attribution
from loom_common.errors import ModelCallUnattributed, ProviderFailed, ReadsLlmFree
from loom_llm.app.health import ProviderHealth
from loom_llm.app.orphans import Orphans, usage_of
from loom_llm.domain.client import DEFAULT_MAX_TOKENS, LLMClient, LLMResult, ResponseFormat
from loom_llm.domain.failures import FailureKind, ProviderError

_SETTING: Final = "LOOM_READS_LLM_FREE"

_WORDS: Final = {
    FailureKind.STATUS: "answered HTTP {status}",
    FailureKind.TIMEOUT: "did not answer in time",
    FailureKind.CONNECTION: "could not be reached",
    FailureKind.MALFORMED: "answered something that cannot be read",
}

_log = structlog.get_logger(__name__)


class Completion:
    """Completes prompts.

    Args:
        client: The model.
        health: Told how each call to it ended.
        orphans: Sees to calls that their callers left.
        reads_llm_free: Whether operations that only read may have no completion.
    """

    def __init__(self, client: LLMClient, health: ProviderHealth, orphans: Orphans, *, reads_llm_free: bool) -> None:
        self._client = client
        self._health = health
        self._orphans = orphans
        self._reads_llm_free = reads_llm_free

    async def complete(
        self,
        system: str,
        user: str,
        max_tokens: int = DEFAULT_MAX_TOKENS,
        response_format: ResponseFormat | None = None,
    ) -> LLMResult:
        """Returns the model's answer to one prompt.

        Raises:
            ModelCallUnattributed: Nobody says whom the call is for.
            ReadsLlmFree: It is for an operation that only reads, and the deployment keeps models out of these.
            ProviderFailed: The provider did not answer.
        """
        self._require_allowed(call.current().attribution)
        try:
            result = await self._orphans.run(self._client.complete(system, user, max_tokens, response_format))
        except ProviderError as error:
            telemetry.add("loom.llm.calls", model=self._client.model, outcome=error.kind.value)
            self._health.failed(error)
            _log.warning(
                "provider_failed",
                provider=error.provider,
                kind=error.kind.value,
                status=error.status,
                attempts=error.attempts,
            )
            raise provider_failed(error) from None
        telemetry.add("loom.llm.calls", model=self._client.model, outcome="ok")
        self._health.answered()
        call.current().usage.merge(usage_of(result))
        return result

    def _require_allowed(self, attribution: Attribution | None) -> None:
        if attribution is None:
            # Whether the call is for a read could not be told either.
            raise ModelCallUnattributed("The call does not say whom it is for. Send loom-attribution-bin with it.")
        if self._reads_llm_free and attribution.read_only:
            raise ReadsLlmFree(
                f"{_SETTING} is on: operations that only read call no model. Ask for an answer without one.",
                detail={"setting": _SETTING},
            )


def provider_failed(error: ProviderError) -> ProviderFailed:
    """Returns the error for callers: what happened, in our words."""
    tries = "" if error.attempts == 1 else f" in {error.attempts} attempts"
    happened = _WORDS[error.kind].format(status=error.status)
    detail: dict[str, str | int] = {
        "provider": error.provider,
        "kind": error.kind.value,
        "attempts": error.attempts,
    }
    if error.status is not None:
        detail["status"] = error.status
    return ProviderFailed(
        f"The model provider {error.provider} {happened}{tries}.",
        detail={**detail},
        retry_after_s=error.retry_after_s,
    )
