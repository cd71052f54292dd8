"""One session of an agent: long texts put aside and read back, and packs of what it needs."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

from loom_client._generated import types
from loom_client._generated.async_ops import AsyncOperations
from loom_client._generated.ops import Operations


class Session:
    """One session, by the name that its agent gives it.

    Args:
        loom: Client to call with.
        session_id: Name of the session, at most 256 characters.
        user_id: User that it is with. Default: the token's.
    """

    def __init__(self, loom: Operations, session_id: str, *, user_id: str | None = None) -> None:
        self._loom = loom
        self.session_id = session_id
        self.user_id = user_id

    def pack(self, query: str | None = None, **options: Any) -> types.PackContextResponse:
        """Packs the context of the session's next step; `options` are those of `context.pack`."""
        return self._loom.context.pack(query, **{**_who(self), **options})

    def offload(
        self, content: str, *, name: str = "", summary: str = "", ttl_seconds: int | None = None
    ) -> types.OffloadContextResponse:
        """Parks a long text, such as what a tool wrote; keep its `pointer` in the transcript instead.

        Args:
            content: The text.
            name: Name of it within the session; the same name replaces. Default: none, then the same text is stored
                once, whoever parks it.
            summary: One line that says what it is. Default: its first 200 characters.
            ttl_seconds: How long it is kept. Default: 7 days.

        Raises:
            LoomError: The call was refused or failed; its `reason` tells why.
        """
        return self._loom.context.offload(
            content, blob_key=_blob_key(self, name), summary=summary or None, ttl_seconds=ttl_seconds
        )

    def fetch(
        self,
        blob_key: str = "",
        *,
        name: str = "",
        offset: int | None = None,
        limit: int | None = None,
        pattern: str | None = None,
        context_lines: int | None = None,
    ) -> types.FetchContextResponse:
        """Reads a parked text: a slice of its characters, or the lines that match a pattern.

        Args:
            blob_key: Key that `offload` answered.
            name: Name that it was parked under in this session, in place of the key.
            offset: First character to read.
            limit: Most characters to return, 1 to 64,000. Default: 4,000.
            pattern: Regular expression of RE2: only lines that it matches are returned.
            context_lines: Lines to show around each of them, 0 to 20.

        Raises:
            ValueError: Neither a key nor a name is given.
            LoomError: The call was refused or failed; its `reason` tells why.
        """
        return self._loom.context.fetch(
            _wanted(self, blob_key, name), offset=offset, limit=limit, pattern=pattern, context_lines=context_lines
        )

    def fetch_all(self, blob_key: str = "", *, name: str = "", limit: int | None = None) -> Iterator[str]:
        """Yields the whole of a parked text, slice by slice; takes the arguments of `fetch`."""
        return self._loom.context.fetch_all(_wanted(self, blob_key, name), limit=limit)


class AsyncSession:
    """One session, for asyncio; see `Session`."""

    def __init__(self, loom: AsyncOperations, session_id: str, *, user_id: str | None = None) -> None:
        self._loom = loom
        self.session_id = session_id
        self.user_id = user_id

    async def pack(self, query: str | None = None, **options: Any) -> types.PackContextResponse:
        """Packs the context of the session's next step; see `Session.pack`."""
        return await self._loom.context.pack(query, **{**_who(self), **options})

    async def offload(
        self, content: str, *, name: str = "", summary: str = "", ttl_seconds: int | None = None
    ) -> types.OffloadContextResponse:
        """Parks a long text; see `Session.offload`."""
        return await self._loom.context.offload(
            content, blob_key=_blob_key(self, name), summary=summary or None, ttl_seconds=ttl_seconds
        )

    async def fetch(
        self,
        blob_key: str = "",
        *,
        name: str = "",
        offset: int | None = None,
        limit: int | None = None,
        pattern: str | None = None,
        context_lines: int | None = None,
    ) -> types.FetchContextResponse:
        """Reads a parked text; see `Session.fetch`."""
        return await self._loom.context.fetch(
            _wanted(self, blob_key, name), offset=offset, limit=limit, pattern=pattern, context_lines=context_lines
        )

    def fetch_all(self, blob_key: str = "", *, name: str = "", limit: int | None = None) -> AsyncIterator[str]:
        """Yields the whole of a parked text, slice by slice; see `Session.fetch_all`."""
        return self._loom.context.fetch_all(_wanted(self, blob_key, name), limit=limit)


def _who(session: Session | AsyncSession) -> dict[str, Any]:
    return {"session_id": session.session_id, "user_id": session.user_id}


def _blob_key(session: Session | AsyncSession, name: str) -> str | None:
    return f"session/{session.session_id}/{name}" if name else None


def _wanted(session: Session | AsyncSession, blob_key: str, name: str) -> str:
    wanted = blob_key or _blob_key(session, name)
    if not wanted:
        raise ValueError("give the key that `offload` answered, or the name that the text was parked under")
    return wanted
