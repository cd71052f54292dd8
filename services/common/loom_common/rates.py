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
        rate = self._rates_per_s.get(rate_class, self._rates_per_s[DEFAULT_CLASS])
        size = max(1.0, rate * _BURST_S)
        now_s = self._clock.monotonic_s()
        bucket = self._buckets.get((rate_class, caller))
        if bucket is None:
            bucket = self._buckets[rate_class, caller] = _Bucket(size, now_s)
        bucket.tokens = min(size, bucket.tokens + (now_s - bucket.filled_at_s) * rate)
        bucket.filled_at_s = now_s
        if bucket.tokens < 1.0:
            return (1.0 - bucket.tokens) / rate
        bucket.tokens -= 1.0
        return 0.0
