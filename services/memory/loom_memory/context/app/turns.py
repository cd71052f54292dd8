"""The section of a pack that shows what was said in past conversations."""

from collections.abc import Mapping, Sequence
from typing import Final

from loom_common.call import Scope
from loom_memory.context.app.ports import Wanted
from loom_memory.context.domain.entries import Entry, on_one_line
from loom_memory.context.domain.sections import Section
from loom_memory.conversations.app.search import ConversationQuery, ConversationSearch

# Source: chosen; a handful of turns says what was said, and more of them are a transcript.
_TOP_K: Final = 8


class RecalledTurns:
    """Turns that answer the question, whoever said them, as `[date] title, who: text`; nothing without a question."""

    sections = (Section.CONVERSATIONS,)

    def __init__(self, search: ConversationSearch) -> None:
        self._search = search

    async def read(self, scope: Scope, wanted: Wanted) -> Mapping[Section, Sequence[Entry]]:
        """See `Source.read`."""
        if not wanted.query:
            return {}
        found = await self._search.search(scope, ConversationQuery(wanted.query, _TOP_K))
        return {
            Section.CONVERSATIONS: [
                Entry(
                    f"{hit.conversation_id}#{hit.turn_id}",
                    f"[{hit.at:%Y-%m-%d}] {on_one_line(hit.title or hit.conversation_id)}, "
                    f"{on_one_line(hit.author or hit.role)}: {on_one_line(hit.text)}",
                    hit.score,
                )
                for hit in found.hits
            ]
        }
