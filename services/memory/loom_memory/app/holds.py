"""What a job leaves as it is for a while, because calls to models for its writers are not made now."""

from typing import Final

from loom_common.clock import Clock
from loom_common.errors import LoomError, ModelCallsOff
from loom_common.model_calls.gate import ModelCallGate
from loom_memory.domain.writers import Held, Writer
from loom_memory.store.rewrites import WaitingText

# Source: chosen. No job looks for work more often.
_LEAST_S: Final = 10.0
# Source: chosen. Where the switch is known here, the organisation is left out of what is selected and never gets here.
_OFF_S: Final = 300.0


class WriterHolds:
    """Organisations and writers whose calls were held, each with the reason, until its time is over.

    The gateway holds an identity, and several writers may be one: each of them is held once a call of it was.
    """

    def __init__(self, model_calls: ModelCallGate, clock: Clock) -> None:
        self._model_calls = model_calls
        self._clock = clock
        self._by_user = "user_id" in model_calls.policy.placeholders
        self._orgs: dict[str, tuple[float, LoomError]] = {}
        self._writers: dict[Writer, tuple[float, LoomError]] = {}

    def hold(self, waiting: WaitingText, error: LoomError) -> float:
        """Holds the writer of a text, or its organisation where that is switched off, and returns how many seconds."""
        if isinstance(error, ModelCallsOff):
            self._orgs[waiting.scope.org] = self._clock.monotonic_s() + _OFF_S, error
            return _OFF_S
        rest_s = max(error.retry_after_s or self._model_calls.policy.cooldown_s, _LEAST_S)
        self._writers[self._writer(waiting)] = self._clock.monotonic_s() + rest_s, error
        return rest_s

    def reason(self, waiting: WaitingText) -> LoomError | None:
        """Returns why a text is held, or None where it is not."""
        now = self._clock.monotonic_s()
        for found in (self._orgs.get(waiting.scope.org), self._writers.get(self._writer(waiting))):
            if found is not None and found[0] > now:
                return found[1]
        return None

    def now(self) -> Held:
        """Returns whose texts are not to be selected, organisations that are switched off among them."""
        now = self._clock.monotonic_s()
        self._orgs = {org: held for org, held in self._orgs.items() if held[0] > now}
        self._writers = {writer: held for writer, held in self._writers.items() if held[0] > now}
        return Held(self._model_calls.off() | self._orgs.keys(), tuple(self._writers), self._by_user)

    def _writer(self, waiting: WaitingText) -> Writer:
        user_id = waiting.identity.user_id if self._by_user else ""
        return Writer(waiting.scope.org, waiting.scope.namespace, waiting.actor, user_id)
