"""The clients: `Loom` waits for each answer, `AsyncLoom` is its twin for asyncio."""

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

import httpx

from loom_client._generated.async_ops import AsyncOperations
from loom_client._generated.ops import Operations
from loom_client._transport import DEFAULT_TIMEOUT_S, MAX_ATTEMPTS, AsyncTransport, ClientConfig, SyncTransport


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
        self._transport = SyncTransport(ClientConfig.of(base_url, token, namespace, timeout_s, max_attempts), http)
        super().__init__(self._transport)

    def call(self, op: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Calls an operation by name and returns its JSON answer; it is sent once, never again."""
        return self._transport.call(op, body or {}, idempotent=False)

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
        self._transport = AsyncTransport(ClientConfig.of(base_url, token, namespace, timeout_s, max_attempts), http)
        super().__init__(self._transport)

    async def call(self, op: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Calls an operation by name and returns its JSON answer; it is sent once, never again."""
        return await self._transport.call(op, body or {}, idempotent=False)

    async def close(self) -> None:
        """Closes the connections."""
        await self._transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
