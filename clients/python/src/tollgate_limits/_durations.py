"""Conversions between seconds, nanoseconds and protobuf's durations. All are exact to 1 ns."""

from __future__ import annotations

from google.protobuf.duration_pb2 import Duration

SECOND = 1_000_000_000
"""Nanoseconds of a second."""


def to_ns(seconds: float) -> int:
    """Nanoseconds of seconds."""
    return round(seconds * SECOND)


def to_seconds(ns: int) -> float:
    """Seconds of nanoseconds."""
    return ns / SECOND


def from_duration(duration: Duration) -> float:
    """Seconds of a duration."""
    return to_seconds(duration.seconds * SECOND + duration.nanos)


def to_duration(seconds: float) -> Duration:
    """Duration of seconds."""
    whole, nanos = divmod(to_ns(seconds), SECOND)
    return Duration(seconds=whole, nanos=nanos)


def whole_seconds(seconds: float) -> int:
    """Seconds, rounded up."""
    return -(-to_ns(seconds) // SECOND)


def less(seconds: float | None, ns: int) -> float | None:
    """Seconds less a time, not below 0. None stays None."""
    return None if seconds is None else to_seconds(max(0, to_ns(seconds) - ns))
