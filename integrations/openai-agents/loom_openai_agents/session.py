"""A session of the Agents SDK that any process can go on with."""

import asyncio
import hashlib
import json
from collections.abc import Iterator
from typing import Any, Final

from agents.memory import SessionABC, SessionSettings

from loom_client import AsyncLoom, InternalError

# The longest that Loom keeps a parked text. Units: seconds.
MAX_TTL_SECONDS: Final = 7_776_000
# The shortest, which an emptied session is kept for.
MIN_TTL_SECONDS: Final = 60
# The most characters of one read, and the most turns of one call.
_SLICE: Final = 64_000
_TURNS: Final = 200
# The most bytes of a turn.
_MAX_TURN_BYTES: Final = 65_536


class LoomSession(SessionABC):
    """The history of one conversation, item for item as the SDK made it.

    What was said by people and agents becomes a conversation of that name too, which searches and packs find later.
    The items themselves, calls of tools and their answers among them, are parked: no search finds them, and they are
    gone when nothing was added for as long as `ttl_seconds` says. A session is then gone on with from what was said.
    One process at a time adds to a session.

    Args:
        session_id: Name of the session and of its conversation, unique in the namespace, at most 256 characters.
        loom: Client to call with.
        user_id: User whose conversation it is. Default: nobody's.
        agent: Name of the agent that takes part.
        ttl_seconds: How long the items are kept after the last change, 60 to 7,776,000.
        session_settings: The SDK's settings: how many of the last items a run is given.
    """

    def __init__(
        self,
        session_id: str,
        loom: AsyncLoom,
        *,
        user_id: str | None = None,
        agent: str | None = None,
        ttl_seconds: int = MAX_TTL_SECONDS,
        session_settings: SessionSettings | None = None,
    ) -> None:
        self.session_id = session_id
        self.session_settings = session_settings
        self._loom = loom
        self._who = {"user_id": user_id, "agent": agent}
        self._ttl_seconds = ttl_seconds
        self._blob_key = f"openai-agents/{session_id}"
        self._changing = asyncio.Lock()

    async def get_items(self, limit: int | None = None) -> list[Any]:
        """Returns the items, oldest first; with a limit the last ones.

        Raises:
            LoomError: The history could not be read; its `reason` tells why.
        """
        if limit is None and self.session_settings is not None:
            limit = self.session_settings.limit
        items = await self._read()
        return items if limit is None else items[max(0, len(items) - limit) :]

    async def add_items(self, items: list[Any]) -> None:
        """Adds items at the end.

        Raises:
            PayloadTooLarge: The history is longer than the deployment keeps.
            LoomError: It could not be read or kept; its `reason` tells why.
        """
        if items:
            async with self._changing:
                before = await self._read()
                await self._say(list(_turns(items, len(before))))
                await self._write([*before, *items])

    async def pop_item(self) -> Any | None:
        """Takes the last item away and returns it; None where there is none. The conversation keeps what was said."""
        async with self._changing:
            items = await self._read()
            if not items:
                return None
            last = items.pop()
            await self._write(items)
            return last

    async def clear_session(self) -> None:
        """Takes all items away, and deletes the conversation."""
        async with self._changing:
            kept = await self._read()
            await self._loom.conversation.delete(self.session_id)
            if kept:
                await self._write([], MIN_TTL_SECONDS)

    async def _say(self, turns: list[dict[str, str]]) -> None:
        for begin in range(0, len(turns), _TURNS):
            await self._loom.conversation.append(
                turns[begin : begin + _TURNS], conversation_id=self.session_id, session_id=self.session_id, **self._who
            )

    async def _read(self) -> list[Any]:
        text = "".join([part async for part in self._loom.context.fetch_all(self._blob_key, limit=_SLICE)])
        if not text:
            said = self._loom.conversation.get_all(self.session_id)
            return [{"role": turn.role, "content": turn.text} async for turn in said if turn.role]
        try:
            items = json.loads(text or "[]")
        except ValueError:
            items = None
        if not isinstance(items, list):
            raise InternalError("INTERNAL", f"what is parked under {self._blob_key!r} is no session's history")
        return items

    async def _write(self, items: list[Any], ttl_seconds: int | None = None) -> None:
        await self._loom.context.offload(
            json.dumps(items, ensure_ascii=False),
            blob_key=self._blob_key,
            summary=f"session {self.session_id[:200]} of the Agents SDK, {len(items)} items",
            ttl_seconds=ttl_seconds or self._ttl_seconds,
        )


def _turns(items: list[Any], begin: int) -> Iterator[dict[str, str]]:
    """Yields what people and agents said; an item that is added again at its place is the same turn."""
    for number, item in enumerate(items, begin):
        role, text = item.get("role"), _text(item.get("content"))
        if role in ("user", "assistant") and text.strip():
            digest = hashlib.sha256(f"{role}\0{text}".encode()).hexdigest()[:16]
            shown = text.encode()[:_MAX_TURN_BYTES].decode(errors="ignore")
            yield {"text": shown, "role": role, "turn_id": f"{number}-{digest}"}


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "\n".join(part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str))
