"""Tools with which an agent remembers and recalls by itself."""

from typing import Final

from agents import FunctionTool, function_tool

from loom_client import AsyncLoom, LoomError

# Sections of a pack that answer a question; the others are for the beginning of a task.
_ANSWERING: Final = ("memories", "decisions", "knowledge", "conversations")
_REPEATED: Final = frozenset({"unchanged", "duplicate"})
DEFAULT_BUDGET: Final = 1_000


def memory_tools(
    loom: AsyncLoom, *, user_id: str | None = None, agent: str | None = None, token_budget: int = DEFAULT_BUDGET
) -> list[FunctionTool]:
    """Returns the tools `remember` and `recall`.

    A refusal by Loom is told to the model as the tool's answer, so that a run goes on without its memory.

    Args:
        loom: Client to call with.
        user_id: User whom the agent talks to: what it remembers is filed under the user, and it recalls only that.
            Default: none; everything that the token may read is recalled.
        agent: Name of the agent, noted beside what it remembers.
        token_budget: Most tokens of one recall, 200 to 12,000.
    """

    async def remember(text: str, kind: str = "fact") -> str:
        """Stores something worth knowing in later conversations: a fact, a preference, a decision with its reason.

        Args:
            text: One statement in a full sentence that can be understood without this conversation.
            kind: What it is: fact, preference, decision, constraint, event or task.
        """
        try:
            done = await loom.memory.set(text, kind=kind, user_id=user_id, agent=agent, source="openai-agents")
        except LoomError as error:
            return _refused(error)
        if done.stored or done.reason in _REPEATED:
            return "Remembered." if done.stored else "Known already."
        return f"Not stored: {done.message}"

    async def recall(question: str) -> str:
        """Finds what is remembered of a question: memories, decisions, documents and past conversations.

        Args:
            question: What to find out, in plain words.
        """
        try:
            pack = await loom.context.pack(
                question,
                only_sections=_ANSWERING,
                token_budget=token_budget,
                user_id=user_id,
                agent=agent,
                read_scope="own_user" if user_id else None,
            )
        except LoomError as error:
            return _refused(error)
        return pack.rendered or "Nothing is remembered of this."

    return [function_tool(remember), function_tool(recall)]


def _refused(error: LoomError) -> str:
    return f"The memory did not answer ({error.reason}): {error.message}"
