"""Warnings that `on_error` decides: at the first decision, and then at most one a minute."""

from __future__ import annotations

import contextlib
import logging
import re
import threading

from .errors import NoAnswerError
from .options import Options

_INTERVAL = 60 * 1_000_000_000
_MAX_CAUSE_LENGTH = 200
# Characters that end a line or control a terminal.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_LOGGER = logging.getLogger("tollgate_limits")


class FailureLog:
    """Counts decisions of `on_error`. Times are nanoseconds of the client's clock."""

    def __init__(self, options: Options) -> None:
        self._addresses = ",".join(options.addresses)
        self._on_error = options.on_error
        self._lock = threading.Lock()
        self._decisions = 0
        self._warned: int | None = None

    def decided(self, cause: NoAnswerError, now: int) -> None:
        """Records a decision, and the error of the call that made it necessary."""
        with self._lock:
            self._decisions += 1
            if self._warned is not None and now - self._warned < _INTERVAL:
                return
            decisions, self._decisions, self._warned = self._decisions, 0, now
        with contextlib.suppress(Exception):  # a filter of the logger may fail
            _LOGGER.warning(
                "no answer from tollgate: addresses=%s on_error=%s decisions=%d error=%s",
                self._addresses,
                self._on_error,
                decisions,
                _cause_text(str(cause)),
            )


def _cause_text(text: str) -> str:
    """The text on one line. It comes from the network, so it is cut and escaped."""
    kept = text[:_MAX_CAUSE_LENGTH]
    escaped = _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", kept)
    return escaped + "…" if len(text) > _MAX_CAUSE_LENGTH else escaped
