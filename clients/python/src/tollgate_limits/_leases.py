"""Leases: hits that the service has taken, for the client to admit without a call.

One lock guards all entries. It is never held across a call. Times are nanoseconds of the client's
clock.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Hashable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TypeAlias

from . import _wire as wire
from ._denial_cache import MAX_AGE, MAX_KEY_BYTES
from ._durations import SECOND, to_ns, to_seconds
from .errors import ClosedError, NoAnswerError
from .model import Decision

MAX_KEYS = 10_000
"""Most keys that are leased, or that may be soon."""

ROUND_TIME = SECOND // 4
"""Time between two rounds, which give back, say counts and renew by age."""

_FIRST_WANTED = 32  # where nothing was admitted lately
_GROWTH = 4  # so many times the hits that were admitted lately are wanted
_ROUND_GROWTH = 2  # by a round, which renews before they are used up
# Two checks within that time lease a key: a lease at the first would cost keys seen once two calls.
_IDLE_TIME = SECOND
_MIN_RENEWED_VALIDITY = SECOND  # a round comes in the last quarter of such a lease
_LAST_PART = 4  # one in so many of its time: a lease is renewed, and goes back after that
_MIN_NOT_LEASED, _MAX_NOT_LEASED = SECOND, 60 * SECOND
_TELL_TIME = SECOND  # between two returns that only say counts
_OFF_TIME = 60 * SECOND  # of a server that has no leases


@dataclass(slots=True)
class _Lease:
    id: str = ""
    left: int = 0
    validity: int = 0
    ends: int = 0

    def has(self, hits: int, now: int) -> bool:
        return self.left >= hits and now < self.ends

    def is_near_end(self, now: int) -> bool:
        return self.ends - now <= self.validity // _LAST_PART

    def is_renewable(self, now: int) -> bool:
        """Whether a round asks for the next lease, because of the age of this one."""
        return self.validity >= _MIN_RENEWED_VALIDITY and self.is_near_end(now)


Outcome: TypeAlias = Decision | NoAnswerError | ClosedError | None
"""What a call for a lease ended with: the refusal, or why it has no answer."""


@dataclass(frozen=True, slots=True)
class LeaseCall:
    """A call for a lease, which sets `done` when it has ended."""

    entry: _Entry
    done: Future[Outcome]
    began: int
    request: wire.LeaseRequest
    is_batched: bool = False
    """Whether a round makes the call, which may take longer than a check."""


class _Entry:
    """Leases of a domain with descriptors."""

    __slots__ = (
        "admitted", "answer", "call", "current", "granted", "last_use", "newest", "next",
        "no_lease_until", "pending", "refused", "resets", "tell_at",
    )  # fmt: skip

    def __init__(self, call: wire.Call, now: int) -> None:
        self.call = call
        # `next` takes the place of `current` once that lacks hits.
        self.current, self.next = _Lease(), _Lease()
        # The id of the newest lease, its hits and its answer.
        self.newest, self.granted = "", 0
        self.answer, self.resets = Decision(True, "lease"), 0
        # Hits that the service was not told yet.
        self.admitted = self.refused = 0
        self.last_use = self.no_lease_until = self.tell_at = now
        self.pending: LeaseCall | None = None

    def decision(self, now: int, left: int, began: float) -> Decision:
        """Decision of a check that took hits, and began then by the real clock."""
        answer = self.answer
        return Decision(
            allowed=True,
            source="lease",
            remaining=None if answer.remaining is None else answer.remaining + left,
            reset=None if answer.reset is None else to_seconds(max(0, self.resets - now)),
            limits=answer.limits,
            elapsed=time.perf_counter() - began,
        )


class Leases:
    """Leases of at most `MAX_KEYS` keys."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Has no leases, as at the beginning. A thread that held the lock may be gone."""
        self._lock = threading.Lock()
        self._entries: dict[Hashable, _Entry] = {}
        self._returns: list[wire.ReturnRequest] = []
        self._off_until = -math.inf
        self._is_ended = self.has_rounds = False

    def __len__(self) -> int:
        return len(self._entries)

    def decide(
        self, key: Hashable, call: wire.Call, hits: int, now: int, began: float, *, renews: bool
    ) -> tuple[Decision | None, LeaseCall | None, bool]:
        """Decision of leased hits, or the call that a check waits for; and whether a call is new.

        A check without either is to be sent. With a decision, a new call is for the next lease.
        """
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                is_full = self._is_ended or len(self._entries) >= MAX_KEYS
                if not is_full and call.key_bytes() <= MAX_KEY_BYTES:
                    self._entries[key] = _Entry(call, now)
                return None, None, False
            is_repeated = now - entry.last_use < _IDLE_TIME
            entry.last_use = now
            left = self._take(entry, hits, now)
            if left is not None:
                is_low = left <= entry.granted // 4
                is_due = is_low and renews and self._may_lease(entry, now)
                due = self._prepare(entry, 1, now) if is_due else None
                return entry.decision(now, left, began), due, is_due
            if entry.pending is None and is_repeated and self._may_lease(entry, now):
                return None, self._prepare(entry, hits, now), True
            pending = entry.pending
            return None, None if pending is None or pending.is_batched else pending, False

    def take(self, call: LeaseCall, hits: int, now: int) -> Decision | None:
        """Decision of a check that has waited for the call."""
        entry = call.entry
        with self._lock:
            left = self._take(entry, hits, now)
            return None if left is None else entry.decision(now, left, 0.0)

    def refused(self, key: Hashable, hits: int, now: int) -> None:
        """Counts a refusal that the service does not know of."""
        entry = self._entries.get(key)
        if entry is not None:
            with self._lock:
                entry.refused += hits
                entry.last_use = now

    def granted(self, call: LeaseCall, answer: wire.LeaseAnswer, now: int) -> None:
        """Records the answer to a call."""
        entry, decision, refusal = call.entry, answer.decision, None
        with self._lock:
            entry.pending = None
            entry.admitted -= call.request.admitted
            entry.refused -= call.request.refused
            validity = to_ns(answer.expires)
            if answer.not_leased:
                entry.no_lease_until = now + min(max(validity, _MIN_NOT_LEASED), _MAX_NOT_LEASED)
            elif not decision.allowed:
                wait = MAX_AGE if decision.retry_after is None else to_ns(decision.retry_after)
                entry.no_lease_until = now + min(wait, MAX_AGE)
                refusal = decision
            else:
                granted = _Lease(answer.lease, answer.hits, validity, call.began + validity)
                if not entry.current.has(1, now):
                    self._advance(entry, now)
                if entry.current.has(1, now):
                    entry.next = granted
                else:
                    entry.current = granted
                entry.newest, entry.granted, entry.answer = granted.id, granted.left, decision
                entry.resets = call.began + to_ns(decision.reset or 0.0)
                entry.tell_at = granted.ends + ROUND_TIME
                if granted.left <= 1:  # Near the end plain checks are fair, and cost no more.
                    entry.no_lease_until = granted.ends
        call.done.set_result(refusal)

    def failed(self, call: LeaseCall, error: BaseException, now: int) -> None:
        """Records that a call has no answer."""
        outcome: Outcome = None
        with self._lock:
            call.entry.pending = None
            call.entry.no_lease_until = now + ROUND_TIME
            if isinstance(error, NoAnswerError) and error.status == "UNIMPLEMENTED":
                self._off_until = now + _OFF_TIME
            elif isinstance(error, (NoAnswerError, ClosedError)):
                outcome = error
        call.done.set_result(outcome)

    def begin_rounds(self) -> bool:
        """Whether rounds are to be made from now on."""
        if self.has_rounds or not self._entries:
            return False
        with self._lock:
            had_rounds, self.has_rounds = self.has_rounds, True
        return not had_rounds

    def round(self, now: int, *, renews: bool) -> tuple[list[LeaseCall], list[wire.ReturnRequest]]:
        """Calls for the next leases, and what goes back."""
        calls = []
        with self._lock:
            for key, entry in list(self._entries.items()):
                current = entry.current
                if entry.pending is not None:
                    continue
                if now - entry.last_use >= _IDLE_TIME:
                    self._empty(entry, now)
                    if now >= entry.no_lease_until:
                        del self._entries[key]
                elif entry.next.has(1, now):
                    if current.is_near_end(now):
                        self._advance(entry, now)
                elif not current.has(1, now):
                    if now >= entry.tell_at:
                        entry.tell_at = now + _TELL_TIME
                        self._empty(entry, now)
                elif renews and current.is_renewable(now) and self._may_lease(entry, now):
                    calls.append(self._prepare(entry, 1, now, is_batched=True))
            returns, self._returns = self._returns, []
            self.has_rounds = bool(self._entries)
        return calls, returns

    def end(self) -> list[Future[Outcome]]:
        """Begins no more calls. Returns those in flight."""
        with self._lock:
            self._is_ended = True
            calls = [entry.pending for entry in self._entries.values()]
        return [call.done for call in calls if call is not None]

    def rest(self, now: int) -> list[wire.ReturnRequest]:
        """All that goes back."""
        with self._lock:
            for entry in self._entries.values():
                self._empty(entry, now)
            self._entries.clear()
            returns, self._returns = self._returns, []
        return returns

    def _take(self, entry: _Entry, hits: int, now: int) -> int | None:
        """Takes hits. Returns those that both leases have left; None if neither has enough."""
        if not entry.current.has(hits, now):
            if not entry.next.has(hits, now):
                return None
            self._advance(entry, now)
        entry.current.left -= hits
        entry.admitted += hits
        left = entry.current.left
        return left + entry.next.left if now < entry.next.ends else left

    def _may_lease(self, entry: _Entry, now: int) -> bool:
        is_off = self._is_ended or now < self._off_until or now < entry.no_lease_until
        return not is_off and entry.pending is None and not entry.next.has(1, now)

    def _prepare(
        self, entry: _Entry, hits: int, now: int, *, is_batched: bool = False
    ) -> LeaseCall:
        growth = _ROUND_GROWTH if is_batched else _GROWTH
        wanted = max(growth * entry.admitted or _FIRST_WANTED, _GROWTH * hits)
        wanted = min(wanted, wire.MAX_LEASE_HITS)
        request = wire.lease_request(
            entry.call, wanted, entry.newest, entry.admitted, entry.refused
        )
        entry.pending = LeaseCall(entry, Future(), now, request, is_batched)
        return entry.pending

    def _advance(self, entry: _Entry, now: int) -> None:
        """Makes the next lease the current one. What was left of that goes back."""
        self._give_back(entry, now)
        entry.current, entry.next = entry.next, _Lease()

    def _give_back(self, entry: _Entry, now: int) -> None:
        if entry.current.has(1, now):
            lease = entry.current
            self._returns.append(wire.return_request(entry.call, lease.id, lease.left))

    def _empty(self, entry: _Entry, now: int) -> None:
        """Gives back all hits of a key, and says its counts."""
        if entry.next.has(1, now):
            self._advance(entry, now)
        unused = 0
        if entry.current.id != entry.newest:
            self._give_back(entry, now)
        elif entry.current.has(1, now):
            unused = entry.current.left
        entry.current = _Lease()
        if entry.newest and unused + entry.admitted + entry.refused:
            self._returns.append(
                wire.return_request(entry.call, entry.newest, unused, entry.admitted, entry.refused)
            )
            entry.admitted = entry.refused = 0
