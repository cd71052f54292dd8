"""Passes of workers: whose calls they make, and what each spent, a row of the ledger for every organisation."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final

from loom_common.attribution import Attribution, Kind
from loom_common.auth.claims import NO_NAMESPACE
from loom_common.call import Call, Scope, bind
from loom_common.clock import Clock
from loom_common.errors import LoomError, Reason
from loom_common.features import Feature
from loom_common.ids import new_id
from loom_common.ledger import LedgerSink, pass_entry
from loom_common.model_calls.jobs import for_attribution
from loom_common.provenance import principal_of

_RECORDER: Final = "memory"
_TRANSPORT: Final = "worker"


class WorkerPass:
    """One pass. Attributes: `calls`, what was spent for each organisation that was worked for."""

    def __init__(self, feature: Feature) -> None:
        self._feature = feature
        self._request_id = new_id()
        self.calls: dict[str, Call] = {}

    @contextmanager
    def acting(self, scope: Scope, actor: str, user_id: str = "") -> Iterator[None]:
        """Makes the calls of the block those of the principal that an actor stands for, writer first.

        Whatever runs around the block neither pays for it nor bounds its time.
        """
        attribution = Attribution(
            org=scope.org,
            namespace=scope.namespace,
            subject=principal_of(actor),
            user_id=user_id,
            feature=self._feature.value,
            kind=Kind.JOB,
        )
        if scope.org not in self.calls:
            made = Call(
                self._feature.value, self._request_id, scope=Scope(scope.org, NO_NAMESPACE), transport=_TRANSPORT
            )
            self.calls[scope.org] = made
        with bind(Call(request_id=self._request_id)) as around, for_attribution(attribution):
            try:
                yield
            finally:
                self.calls[scope.org].usage.merge(around.usage)


class Passes:
    """Opens passes of one worker and hands their rows to the ledger."""

    def __init__(self, feature: Feature, clock: Clock, ledger: LedgerSink) -> None:
        self._feature = feature
        self._clock = clock
        self._ledger = ledger

    @asynccontextmanager
    async def passing(self) -> AsyncIterator[WorkerPass]:
        """Makes the block one pass; what it spent is recorded at its end, however it ends."""
        work = WorkerPass(self._feature)
        started_at, began = self._clock.now(), self._clock.monotonic_s()
        outcome = "ok"
        try:
            yield work
        except LoomError as error:
            outcome = error.reason.value
            raise
        except asyncio.CancelledError:
            outcome = Reason.CANCELLED.value
            raise
        finally:
            latency_ms = (self._clock.monotonic_s() - began) * 1000
            for call in work.calls.values():
                self._ledger.record(
                    pass_entry(call, recorder=_RECORDER, started_at=started_at, latency_ms=latency_ms, outcome=outcome)
                )
