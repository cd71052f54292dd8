"""What a replica remembers of a client's session: nothing that another replica would miss.

A session identifier is a label that the client keeps. Any replica answers any request under it, whoever made it; what
is remembered here only saves words and lets a client cancel its own calls. It is forgotten when it is old.
"""

import asyncio
import re
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from loom_common.ids import new_id

SESSION_HEADER: Final = "mcp-session-id"

# The protocol's own rule on the characters; the length is that of a run identifier, which the label is, too.
_LABEL: Final = re.compile(r"[\x21-\x7e]{1,256}")
# Source: chosen. Some hundred bytes each; a session that comes back after 10,000 others is told the rule once more.
_MAX_SESSIONS: Final = 10_000

CallId = str | int


@dataclass(slots=True)
class Session:
    """One client's session, as this replica knows it."""

    label: str = ""
    """The session's identifier; empty for a client that sends none, of which nothing is remembered."""
    rule_told: bool = False
    """Whether an answer of this session has carried the rule on reading results."""
    log_level: str = ""
    """Least severe level of the notices that the client wants; empty for none."""
    _running: dict[CallId, "asyncio.Task[object]"] = field(default_factory=dict, repr=False)

    @contextmanager
    def running(self, call: CallId | None, task: "asyncio.Task[object]") -> Iterator[None]:
        """Lets the client cancel the task by the call's identifier while inside."""
        if not self.label or call is None:
            yield
            return
        self._running[call] = task
        try:
            yield
        finally:
            if self._running.get(call) is task:
                del self._running[call]

    def cancel(self, call: CallId) -> bool:
        """Cancels a running call of this session; returns whether there was one here."""
        task = self._running.get(call)
        return task is not None and task.cancel()

    @property
    def is_idle(self) -> bool:
        """Whether none of its calls runs here."""
        return not self._running


class Sessions:
    """The sessions that this replica has seen lately, by who opened them: a label alone opens nobody else's."""

    def __init__(self, *, most: int = _MAX_SESSIONS) -> None:
        self._most = most
        self._held: OrderedDict[tuple[str, str], Session] = OrderedDict()

    def of(self, token_id: str, label: str) -> Session:
        """Returns the session of a token and a label; a label that the protocol does not allow counts as none."""
        if not _LABEL.fullmatch(label):
            return Session()
        place = (token_id, label)
        found = self._held.get(place)
        if found is None:
            found = self._held[place] = Session(label)
            self._forget_old()
        self._held.move_to_end(place)
        return found

    def _forget_old(self) -> None:
        while len(self._held) > self._most:
            place, oldest = self._held.popitem(last=False)
            if not oldest.is_idle:
                # A call of it still runs; it goes once it is the oldest again.
                self._held[place] = oldest
                return


def new_label() -> str:
    """Returns the identifier of a new session."""
    return new_id()
