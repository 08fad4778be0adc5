"""Token buckets that decide while the service does not answer."""

from __future__ import annotations

import threading
from collections.abc import Hashable
from fractions import Fraction

from ._durations import SECOND, to_seconds
from .options import LocalBucket

MAX_BUCKETS = 10_000
"""Most buckets. The one that was made first is dropped first."""


class LocalBuckets:
    """One token bucket for each key. Times are nanoseconds of the client's clock.

    A level is counted in parts of a token, such that a nanosecond adds a whole number of them.
    Without rounding, a caller that waits for `retry_after` always passes.
    """

    def __init__(self, options: LocalBucket, bound: int = MAX_BUCKETS) -> None:
        rate = Fraction(options.per_second).limit_denominator(1_000_000_000)
        self._parts_per_ns = rate.numerator
        self._parts_per_token = rate.denominator * SECOND
        self._burst = options.burst
        self._bound = bound
        self._lock = threading.Lock()
        self._buckets: dict[Hashable, tuple[int, int]] = {}

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, key: Hashable, hits: int, now: int) -> tuple[bool, float | None]:
        """Takes hits, if that many tokens are there.

        Returns whether it did, and if not the seconds until they are there: None if never.
        """
        full = self._burst * self._parts_per_token
        wanted = hits * self._parts_per_token
        with self._lock:
            level, then = self._buckets.get(key, (full, now))
            level = min(full, level + max(0, now - then) * self._parts_per_ns)
            if key not in self._buckets and len(self._buckets) >= self._bound:
                del self._buckets[next(iter(self._buckets))]
            passes = wanted <= level
            self._buckets[key] = (level - wanted if passes else level, max(now, then))
        if passes:
            return True, None
        if hits > self._burst:
            return False, None
        microseconds = -((level - wanted) // (self._parts_per_ns * 1_000))
        return False, to_seconds(microseconds * 1_000)
