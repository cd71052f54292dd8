"""What the llm service says of itself."""

from collections.abc import Callable

from loom_common.status import Problem, Severity, StatusReport
from loom_llm.app.watching import Healths
from loom_llm.domain.selection import FAKE, KEY_VARIABLES, Selection


class LlmStatus:
    """Tells which model is served and how its provider fares.

    Args:
        selection: The served model.
        health: How providers fare.
        require_real: Whether a fake is an error.
        more: What else an operator should know.
    """

    def __init__(
        self,
        selection: Selection,
        health: Healths,
        *,
        require_real: bool,
        more: Callable[[], list[Problem]] = list,
    ) -> None:
        self._selection = selection
        self._health = health
        self._more = more
        self._fake_severity: Severity = "error" if require_real else "warning"

    async def report(self) -> StatusReport:
        """See `StatusSource.report`. A provider that fails leaves the service ready: the next call may succeed."""
        served = self._selection
        facts = {
            "provider": served.provider,
            "model": served.model,
            "llm_provider_source": served.source.value,
            "llm_provider_inferred": str(served.inferred).lower(),
        }
        return StatusReport(ready=True, problems=tuple(self._problems()), facts=facts)

    def _problems(self) -> list[Problem]:
        served = self._selection
        problems = []
        if served.key_missing:
            variable = KEY_VARIABLES[served.wanted_provider]
            problems.append(
                Problem(
                    "llm_key_missing",
                    f"The model provider is {served.wanted_provider} and {variable} is not set, so the fake answers. "
                    f"Set {variable}.",
                    self._fake_severity,
                )
            )
        if served.provider == FAKE:
            problems.append(
                Problem(
                    "fake_llm",
                    f"The model is the fake {served.model}, which echoes. Set OPENAI_API_KEY or ANTHROPIC_API_KEY "
                    "for a real one.",
                    self._fake_severity,
                )
            )
        return problems + self._more() + self._health.problems()
