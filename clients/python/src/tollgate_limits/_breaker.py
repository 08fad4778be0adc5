"""Circuit breaker: stops calls after failures in a row, then probes with one call at a time."""

from __future__ import annotations

import threading

from ._durations import to_ns
from .errors import BreakerOpenError, ServiceError
from .options import BreakerOptions

# Statuses that are failures of the service. Any other is an answer.
FAILURES = frozenset({"UNAVAILABLE", "DEADLINE_EXCEEDED", "INTERNAL", "UNKNOWN", "CANCELLED"})


class Breaker:
    """Counts results of calls. Times are nanoseconds of the client's clock.

    A permit is the number of the period in which its call started. Each change between closed, open
    and half open starts a period, so a result of an earlier period is not counted.
    """

    def __init__(self, options: BreakerOptions) -> None:
        self._options = options
        self._open_time = to_ns(options.open_time)
        self._lock = threading.Lock()
        self._period = 0
        self._failures = 0
        self._open_until: int | None = None
        self._probing = False
        self.cause: ServiceError | None = None
        """The failure that opened the breaker last."""

    @property
    def is_closed(self) -> bool:
        """Whether calls need no probe."""
        return self._open_until is None

    def enter(self, now: int) -> int:
        """Permit for a call. Raises `BreakerOpenError` if none may be made."""
        with self._lock:
            if self._open_until is not None:
                if now < self._open_until or self._probing:
                    raise BreakerOpenError
                self._probing = True
                self._period += 1
            return self._period

    def succeeded(self, permit: int) -> None:
        """Records an answer: ends a row of failures, and closes a half-open breaker."""
        with self._lock:
            if permit != self._period:
                return
            self._failures = 0
            if self._probing:
                self._probing = False
                self._open_until = None
                self._period += 1

    def failed(self, permit: int, now: int, failure: ServiceError) -> None:
        """Records a failure of the service."""
        with self._lock:
            if permit != self._period:
                return
            self._failures += 1
            if self._probing or self._failures >= self._options.failures:
                self._probing = False
                self._failures = 0
                self._open_until = now + self._open_time
                self.cause = failure
                self._period += 1

    def abandoned(self, permit: int) -> None:
        """Records a call that its caller cancelled: the next call may probe."""
        with self._lock:
            if permit == self._period and self._probing:
                self._probing = False
