"""Conversations as a search over every plane asks them."""

from loom_common.call import Scope
from loom_memory.conversations.app.search import ConversationQuery, ConversationSearch
from loom_memory.unified.app.ports import TurnMatch, TurnsFound


class ConversationLeg:
    """Turns of every author that the running call may read. See `Conversations` of the search over every plane."""

    def __init__(self, search: ConversationSearch) -> None:
        self._search = search

    async def search(self, scope: Scope, text: str, top_k: int) -> TurnsFound:
        """Returns turns that answer, best first."""
        found = await self._search.search(scope, ConversationQuery(text, top_k))
        matches = [
            TurnMatch(
                scope, hit.conversation_id, hit.title, hit.turn_id, hit.turn_index, hit.author, hit.role, hit.text,
                hit.at, hit.score, hit.similarity,
            )
            for hit in found.hits
        ]  # fmt: skip
        return TurnsFound(matches, found.abstain_code)
