"""Who runs the agent that answers: nobody, until a host is configured."""

from typing import Protocol

from loom_common.errors import AssistantUnavailable


class AgentHost(Protocol):
    """Runs the agent for one question at a time."""

    async def answer(self, question: str) -> str:
        """Returns the whole answer.

        Raises:
            AssistantUnavailable: No host is configured, or it does not answer; `detail.reason` tells which.
        """
        ...


class NoHost:
    """The host of a build that has none."""

    async def answer(self, question: str) -> str:
        """Refuses; see `AgentHost.answer`."""
        raise AssistantUnavailable(
            "no assistant is configured on this deployment; search with `search.query` instead",
            detail={"reason": "not_configured"},
        )
