"""The clients: `Loom` waits for each answer, `AsyncLoom` is its twin for asyncio."""

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import httpx

from loom_client._generated.async_ops import AsyncOperations
from loom_client._generated.ops import Operations
from loom_client._generated.repeatable import REPEATABLE
from loom_client._transport import DEFAULT_TIMEOUT_S, MAX_ATTEMPTS, AsyncTransport, ClientConfig, SyncTransport
from loom_client._wire import arguments
from loom_client.sessions import AsyncSession, Session
from loom_client.transfer import (
    ExportedLine,
    Imported,
    export_body,
    export_lines,
    export_lines_async,
    import_lines,
    import_lines_async,
    import_query,
    objects,
    objects_async,
)


class Loom(Operations):
    """A connection to Loom. Use it as a context manager, or call `close`.

    Args:
        base_url: Address of the gateway. Default: `LOOM_BASE_URL`, else `http://127.0.0.1:8080`.
        token: The token to call with. Default: `LOOM_API_KEY`.
        namespace: Namespace of calls that name none. Default: the token's first.
        timeout_s: Longest wait for one answer. Units: seconds.
        max_attempts: Most attempts of a call that may be sent again.
        http: An `httpx.Client` of your own, for proxies or certificates.

    Raises:
        LoomConfigError: There is no token, or the address is no HTTP address.
    """

    def __init__(
        self,
        base_url: str | None = None,
        token: str | None = None,
        *,
        namespace: str | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        max_attempts: int = MAX_ATTEMPTS,
        http: httpx.Client | None = None,
    ) -> None:
        self._config = ClientConfig.of(base_url, token, namespace, timeout_s, max_attempts)
        self._transport = SyncTransport(self._config, http)
        super().__init__(self._transport)

    def call(self, op: str, body: Mapping[str, Any] | None = None, /, **fields: Any) -> dict[str, Any]:
        """Calls an operation by name and returns its JSON answer.

        It is sent again where its method would be; one that this client does not know is sent once.

        Args:
            op: Name of the operation, such as `search.query`.
            body: Its request.
            fields: Fields of the request, beside those of `body`.

        Raises:
            LoomError: The call was refused or failed; its `reason` tells why.
        """
        return self._transport.call(op, arguments(**{**(body or {}), **fields}), idempotent=op in REPEATABLE)

    def stream(self, op: str, body: Mapping[str, Any] | None = None, /, **fields: Any) -> Iterator[dict[str, Any]]:
        """Calls an operation that answers line by line, such as `memory.export`, and yields each line as it comes.

        Raises:
            LoomError: The call was refused, failed or was cut; what was yielded before holds.
        """
        return objects(self._transport.lines_out(op, arguments(**{**(body or {}), **fields})))

    def open_session(self, session_id: str, *, user_id: str | None = None) -> Session:
        """Returns one session of an agent: its texts aside, and packs of its own; nothing is sent for it."""
        return Session(self, session_id, user_id=user_id)

    def export(
        self,
        *,
        namespace: str | None = None,
        user_id: str | None = None,
        session_id: str | None = None,
        kinds: Sequence[str] | None = None,
        tags: Sequence[str] | None = None,
        with_vectors: bool = False,
        with_versions: bool = False,
        cursor: str | None = None,
    ) -> Iterator[ExportedLine]:
        """Yields every memory of a namespace as a line of JSON, in order of key, user and session, as of one moment.

        Args:
            namespace: Namespace to read. Default: the client's.
            user_id: Only this user's.
            session_id: Only this session's.
            kinds: Only of these kinds.
            tags: Only with any of these labels.
            with_vectors: Whether vectors come along, so that an import need not make them again.
            with_versions: Whether earlier versions do.
            cursor: Goes on where an export with the same arguments was cut.

        Raises:
            LoomError: The call was refused, failed or was cut; its `reason` tells why.
        """
        body = export_body(
            namespace=namespace,
            user_id=user_id,
            session_id=session_id,
            kinds=kinds,
            tags=tags,
            with_vectors=with_vectors,
            with_versions=with_versions,
            cursor=cursor,
        )
        return export_lines(self._transport, body)

    def import_(
        self,
        lines: Iterable[bytes],
        *,
        namespace: str | None = None,
        dry_run: bool = False,
        skip_existing: bool = False,
    ) -> Iterator[Imported]:
        """Stores lines of an export, some thousands in a call, and yields what was done after each call.

        Nothing is sent until the result is read. The same lines may be sent again: what is there already makes no new
        version.

        Args:
            lines: Lines of JSON; a file opened with `"rb"` is one source.
            namespace: Namespace to write. Default: the client's.
            dry_run: Whether to check the lines and store nothing.
            skip_existing: Whether a key that is there with other content is left as it is, and not given a new version.

        Raises:
            LoomError: A call was refused or failed; what was yielded before is stored.
        """
        asked = import_query(
            namespace=namespace or self._config.namespace, dry_run=dry_run, skip_existing=skip_existing
        )
        return import_lines(self._transport, lines, asked)

    def close(self) -> None:
        """Closes the connections."""
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncLoom(AsyncOperations):
    """A connection to Loom for asyncio, with the arguments of `Loom`. Belongs to the event loop it is first used in."""

    def __init__(
        self,
        base_url: str | None = None,
        token: str | None = None,
        *,
        namespace: str | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        max_attempts: int = MAX_ATTEMPTS,
        http: httpx.AsyncClient | None = None,
    ) -> None:
        self._config = ClientConfig.of(base_url, token, namespace, timeout_s, max_attempts)
        self._transport = AsyncTransport(self._config, http)
        super().__init__(self._transport)

    async def call(self, op: str, body: Mapping[str, Any] | None = None, /, **fields: Any) -> dict[str, Any]:
        """Calls an operation by name and returns its JSON answer; see `Loom.call`."""
        return await self._transport.call(op, arguments(**{**(body or {}), **fields}), idempotent=op in REPEATABLE)

    def stream(self, op: str, body: Mapping[str, Any] | None = None, /, **fields: Any) -> AsyncIterator[dict[str, Any]]:
        """Calls an operation that answers line by line, and yields each line as it comes; see `Loom.stream`."""
        return objects_async(self._transport.lines_out(op, arguments(**{**(body or {}), **fields})))

    def open_session(self, session_id: str, *, user_id: str | None = None) -> AsyncSession:
        """Returns one session of an agent; see `Loom.open_session`."""
        return AsyncSession(self, session_id, user_id=user_id)

    def export(
        self,
        *,
        namespace: str | None = None,
        user_id: str | None = None,
        session_id: str | None = None,
        kinds: Sequence[str] | None = None,
        tags: Sequence[str] | None = None,
        with_vectors: bool = False,
        with_versions: bool = False,
        cursor: str | None = None,
    ) -> AsyncIterator[ExportedLine]:
        """Yields every memory of a namespace as a line of JSON; see `Loom.export`."""
        body = export_body(
            namespace=namespace,
            user_id=user_id,
            session_id=session_id,
            kinds=kinds,
            tags=tags,
            with_vectors=with_vectors,
            with_versions=with_versions,
            cursor=cursor,
        )
        return export_lines_async(self._transport, body)

    def import_(
        self,
        lines: Iterable[bytes],
        *,
        namespace: str | None = None,
        dry_run: bool = False,
        skip_existing: bool = False,
    ) -> AsyncIterator[Imported]:
        """Stores lines of an export and yields what was done after each call; see `Loom.import_`."""
        asked = import_query(
            namespace=namespace or self._config.namespace, dry_run=dry_run, skip_existing=skip_existing
        )
        return import_lines_async(self._transport, lines, asked)

    async def close(self) -> None:
        """Closes the connections."""
        await self._transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
