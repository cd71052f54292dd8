"""What a handler sees of a call that came to it within the process, in place of gRPC's own context."""

import time
from collections.abc import Mapping
from typing import Any, NoReturn, TypeAlias

import grpc
import grpc.aio

Pairs: TypeAlias = tuple[tuple[str, str | bytes], ...]
"""Metadata, in its order."""


class LocalContext(grpc.aio.ServicerContext[Any, Any]):
    """The context of one call that answers one message with one message.

    Args:
        metadata: What the caller sent along.
        deadline: When the caller stops waiting, on the clock of `time.monotonic`; None for never. Units: seconds.
    """

    def __init__(self, metadata: Pairs, deadline: float | None) -> None:
        self._metadata = metadata
        self._deadline = deadline
        self._is_over = False
        self._trailing: Pairs = ()
        self._code: grpc.StatusCode | None = None
        self._details = ""

    def invocation_metadata(self) -> Any:
        """See `grpc.aio.ServicerContext.invocation_metadata`."""
        return self._metadata

    def time_remaining(self) -> Any:
        """Returns how long the caller still waits, not below 0; None where it set no deadline. Units: seconds."""
        if self._deadline is None:
            return None
        left_s = max(0.0, self._deadline - time.monotonic())
        self._is_over = self._is_over or left_s <= 0
        return left_s

    @property
    def is_over(self) -> bool:
        """Whether the handler was told that its caller waits no more, and accounts for what it spent itself."""
        return self._is_over

    async def abort(self, code: grpc.StatusCode, details: str = "", trailing_metadata: Any = ()) -> NoReturn:
        """Ends the call with an error. See `grpc.aio.ServicerContext.abort`."""
        self._code, self._details = code, details
        if trailing_metadata:
            self._trailing = tuple(trailing_metadata)
        raise grpc.aio.AbortError("Locally aborted.")

    async def abort_with_status(self, status: grpc.Status) -> NoReturn:
        """See `grpc.aio.ServicerContext.abort_with_status`."""
        await self.abort(status.code, status.details, status.trailing_metadata)

    def set_trailing_metadata(self, trailing_metadata: Any) -> None:
        """See `grpc.aio.ServicerContext.set_trailing_metadata`."""
        self._trailing = tuple(trailing_metadata)

    def trailing_metadata(self) -> Any:
        """Returns what goes back beside the answer."""
        return self._trailing

    def set_code(self, code: grpc.StatusCode) -> None:
        """See `grpc.aio.ServicerContext.set_code`."""
        self._code = code

    def code(self) -> Any:
        """Returns the status that was set; None where none was."""
        return self._code

    def set_details(self, details: str) -> None:
        """See `grpc.aio.ServicerContext.set_details`."""
        self._details = details

    def details(self) -> Any:
        """Returns the text of the status."""
        return self._details

    def peer(self) -> str:
        """Returns where the call came from."""
        return "local:"

    def peer_identities(self) -> None:
        """Returns nothing, as over a socket without TLS."""

    def peer_identity_key(self) -> None:
        """Returns nothing, as over a socket without TLS."""

    def auth_context(self) -> Mapping[str, Any]:
        """Returns nothing, as over a socket without TLS."""
        return {}

    async def send_initial_metadata(self, initial_metadata: Any) -> None:
        """Does nothing: no caller of ours reads it."""

    def set_compression(self, compression: grpc.Compression) -> None:
        """Does nothing: nothing is packed here."""

    def disable_next_message_compression(self) -> None:
        """Does nothing: nothing is packed here."""

    async def read(self) -> NoReturn:
        """Refuses: a call of one message each way has none to read."""
        raise grpc.aio.UsageError("the call has no further messages")

    async def write(self, message: object) -> NoReturn:
        """Refuses: the answer of such a call is what its handler returns."""
        raise grpc.aio.UsageError("the call answers one message")
