"""The one gate before every call to a model, the fake and the cache included."""

from typing import Final

from loom_common import call
from loom_common.budget import Budget
from loom_common.call import Scope
from loom_common.errors import ModelCallUnattributed, ReadsLlmFree
from loom_common.model_calls.gate import OPEN_GATE
from loom_common.model_calls.gate import Gate as ModelCalls

_SETTING: Final = "LOOM_READS_LLM_FREE"


class Gate:
    """Says whether the running call may have a model's answer.

    Args:
        reads_llm_free: Whether operations that only read may have none.
        model_calls: Whether calls may be made for the organisation at all, and what they say of whom they are for.
        budget: What namespaces may spend; None where calls cost nothing.
    """

    def __init__(
        self, *, reads_llm_free: bool, model_calls: ModelCalls = OPEN_GATE, budget: Budget | None = None
    ) -> None:
        self._reads_llm_free = reads_llm_free
        self._model_calls = model_calls
        self._budget = budget

    async def require(self, *, named: bool = False) -> None:
        """Lets the running call pass.

        Args:
            named: Whether it is for a reranker that the request names itself, which LLM-free reads let run.

        Raises:
            ModelCallUnattributed: Nobody says whom the call is for.
            ReadsLlmFree: It is for an operation that only reads, and the deployment keeps models out of these.
            ModelCallsOff: Its organisation switched calls to models off; kept answers are not given either.
            ModelPolicyUnread: That, or whom the call is for, could not be read.
            BudgetExhausted: Its namespace has spent what it may in a day; kept answers are not given either.
            BackendUnavailable: What it spent could not be read.
        """
        attribution = call.current().attribution
        if attribution is None:
            # Whether the call is for a read could not be told either.
            raise ModelCallUnattributed("The call does not say whom it is for. Send loom-attribution-bin with it.")
        if self._reads_llm_free and attribution.read_only and not named:
            raise ReadsLlmFree(
                f"{_SETTING} is on: operations that only read call no model. Ask for an answer without one.",
                detail={"setting": _SETTING},
            )
        await self._model_calls.require()
        if self._budget is not None and attribution.org and attribution.namespace:
            await self._budget.require_within(Scope(attribution.org, attribution.namespace))
