"""How often something may happen: token buckets."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import cachetools

from loom_common.clock import Clock, SystemClock

DEFAULT_CLASS: Final = "default"

# Seconds of its rate that a caller may use at once. Source: chosen; agents work in bursts.
_BURST_S: Final = 2.0
_MAX_BUCKETS: Final = 16_384


@dataclass(slots=True)
class _Bucket:
    tokens: float
    filled_at_s: float


class RateLimiter:
    """Token buckets, one for each caller and rate class. Exact within this process and unknown to others."""

    def __init__(self, rates_per_s: Mapping[str, float], clock: Clock | None = None) -> None:
        """Takes the rate of each class; a class without one has that of `default`."""
        self._rates_per_s = dict(rates_per_s)
        self._clock = clock or SystemClock()
        # A caller whose bucket is dropped for others' begins with a full one.
        self._buckets: cachetools.LRUCache[tuple[str, str], _Bucket] = cachetools.LRUCache(_MAX_BUCKETS)

    def take(self, rate_class: str, caller: str) -> float:
        """Takes one call from the caller's bucket.

        Returns:
            0 where there was one, else the seconds until there is.
        """
        return self.take_each(rate_class, {caller: 1.0})

    def take_each(self, rate_class: str, callers: Mapping[str, float]) -> float:
        """Takes one call from the bucket of each of several callers that it counts for, or from none of them.

        Args:
            rate_class: Class of the call.
            callers: Who it counts for, each with how many times the class's rate is theirs.

        Returns:
            0 where all had one, else the seconds until they have.
        """
        rate = self._rates_per_s.get(rate_class, self._rates_per_s[DEFAULT_CLASS])
        now_s = self._clock.monotonic_s()
        filled = [
            (self._filled(rate_class, caller, rate * times, now_s), rate * times) for caller, times in callers.items()
        ]
        wait_s = max((1.0 - bucket.tokens) / its_rate for bucket, its_rate in filled)
        if wait_s > 0:
            return wait_s
        for bucket, _ in filled:
            bucket.tokens -= 1.0
        return 0.0

    def _filled(self, rate_class: str, caller: str, rate_per_s: float, now_s: float) -> _Bucket:
        size = max(1.0, rate_per_s * _BURST_S)
        bucket = self._buckets.get((rate_class, caller))
        if bucket is None:
            bucket = self._buckets[rate_class, caller] = _Bucket(size, now_s)
        bucket.tokens = min(size, bucket.tokens + (now_s - bucket.filled_at_s) * rate_per_s)
        bucket.filled_at_s = now_s
        return bucket
