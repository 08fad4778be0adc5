"""Denial cache: repeats refusals of the server without a call."""

from __future__ import annotations

import threading
from collections.abc import Hashable
from dataclasses import dataclass, replace

from ._durations import SECOND, less, to_ns
from .model import Decision

MAX_KEY_BYTES = 1_024
"""Most bytes of keys and values of a check that is remembered."""

MAX_AGE = SECOND
"""Longest life of an entry, so that resets and refunds are seen."""


@dataclass(frozen=True, slots=True)
class _Entry:
    hits: tuple[int, ...]
    decision: Decision
    written: int
    ends: int


class DenialCache:
    """At most `bound` refusals. Times are nanoseconds of the client's clock."""

    def __init__(self, bound: int) -> None:
        self._bound = bound
        self._lock = threading.Lock()
        self._entries: dict[Hashable, _Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: Hashable, hits: tuple[int, ...], now: int) -> Decision | None:
        """The refusal of as many or fewer hits in each descriptor, with its times as of now."""
        if not self._entries or not any(hits):
            return None
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            if now >= entry.ends:
                del self._entries[key]
                return None
        if any(ours < refused for ours, refused in zip(hits, entry.hits, strict=True)):
            return None
        return _aged(entry.decision, now - entry.written)

    def put(self, key: Hashable, hits: tuple[int, ...], decision: Decision, now: int) -> None:
        """Remembers a refusal, in place of an earlier one of the same key."""
        if self._bound == 0 or not any(hits):
            return
        life = MAX_AGE
        if decision.retry_after is not None:
            life = min(life, to_ns(decision.retry_after))
        with self._lock:
            self._entries.pop(key, None)
            if life <= 0:
                return
            if len(self._entries) >= self._bound:
                del self._entries[next(iter(self._entries))]
            self._entries[key] = _Entry(hits, decision, now, now + life)


def _aged(decision: Decision, age: int) -> Decision:
    limits = tuple(
        replace(limit, reset=less(limit.reset, age), retry_after=less(limit.retry_after, age))
        for limit in decision.limits
    )
    return replace(
        decision,
        source="cache",
        reset=less(decision.reset, age),
        retry_after=less(decision.retry_after, age),
        limits=limits,
    )
