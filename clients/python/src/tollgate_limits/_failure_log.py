"""Warnings that `on_error` decides: at the first decision, and then at most one a minute."""

from __future__ import annotations

import contextlib
import logging
import threading

from .errors import BreakerOpenError, NoAnswerError
from .options import Options

_INTERVAL = 60 * 1_000_000_000
_LOGGER = logging.getLogger("tollgate_limits")


class FailureLog:
    """Counts decisions of `on_error`. Times are nanoseconds of the client's clock."""

    def __init__(self, options: Options) -> None:
        self._addresses = ",".join(options.addresses)
        self._on_error = options.on_error
        self._lock = threading.Lock()
        self._decisions = 0
        self._warned: int | None = None

    def decided(self, error: NoAnswerError, now: int) -> None:
        """Records a decision, and why it was needed."""
        with self._lock:
            self._decisions += 1
            # A call that the breaker stopped has no cause of its own.
            if isinstance(error, BreakerOpenError) or (
                self._warned is not None and now - self._warned < _INTERVAL
            ):
                return
            decisions, self._decisions, self._warned = self._decisions, 0, now
        with contextlib.suppress(Exception):  # a filter of the logger may fail
            _LOGGER.warning(
                "no answer from the service: addresses=%s on_error=%s decisions=%d error=%s",
                self._addresses,
                self._on_error,
                decisions,
                error,
            )
