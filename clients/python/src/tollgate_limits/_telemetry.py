"""Spans and metrics of OpenTelemetry, if its API is installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ._version import __version__
from .model import Decision

try:
    from opentelemetry import metrics, trace
except ImportError:
    _INSTALLED = False
else:
    _INSTALLED = True
    _CLIENT = trace.SpanKind.CLIENT

_NAME = "tollgate_limits"


class Span:
    """Span of a call. Without OpenTelemetry it does nothing."""

    def __init__(self, span: Any) -> None:
        self._span = span

    def decided(self, decision: Decision) -> None:
        """Adds the decision, and the error if the server did not answer."""
        if self._span is None:
            return
        self._span.set_attribute("tollgate.source", decision.source)
        self._span.set_attribute("tollgate.verdict", _verdict(decision))
        if decision.error is not None:
            self.failed(decision.error)

    def failed(self, error: BaseException) -> None:
        """Marks the span as an error."""
        if self._span is not None:
            self._span.set_status(trace.StatusCode.ERROR, str(error))


_NO_SPAN = Span(None)


class Telemetry:
    """Instruments of a client. A provider of None is the global one."""

    def __init__(self, tracer_provider: Any, meter_provider: Any) -> None:
        if not _INSTALLED:
            return
        self._tracer = trace.get_tracer(_NAME, __version__, tracer_provider)
        meter = metrics.get_meter(_NAME, __version__, meter_provider)
        self._decisions = meter.create_counter(
            "tollgate.client.decisions",
            unit="{decision}",
            description="Decisions about checks and reservations.",
        )
        self._duration = meter.create_histogram(
            "tollgate.client.duration",
            unit="s",
            description="Duration of a check.",
            explicit_bucket_boundaries_advisory=[
                0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
            ],
        )  # fmt: skip

    @contextmanager
    def span(self, name: str, domain: str) -> Iterator[Span]:
        """Client span `tollgate.NAME`, current inside."""
        if not _INSTALLED:
            yield _NO_SPAN
            return
        with self._tracer.start_as_current_span(
            f"tollgate.{name}",
            kind=_CLIENT,
            attributes={"tollgate.domain": domain},
            record_exception=False,
            set_status_on_exception=False,
        ) as current:
            span = Span(current)
            try:
                yield span
            except Exception as error:
                span.failed(error)
                raise

    def decided_alone(self, domain: str, decision: Decision) -> None:
        """Span and counts of a check that was decided without the service."""
        if not _INSTALLED:
            return
        attributes = {
            "tollgate.domain": domain,
            "tollgate.source": decision.source,
            "tollgate.verdict": _verdict(decision),
        }
        self._tracer.start_span("tollgate.check", None, _CLIENT, attributes).end()
        self.decided(decision, check=True)

    def decided(self, decision: Decision, *, check: bool) -> None:
        """Counts a decision, and measures it if it is of a check."""
        if not _INSTALLED:
            return
        attributes = {"tollgate.source": decision.source, "tollgate.verdict": _verdict(decision)}
        self._decisions.add(1, attributes)
        if check:
            self._duration.record(decision.elapsed, {"tollgate.source": decision.source})


def _verdict(decision: Decision) -> str:
    return "ok" if decision.allowed else "over_limit"
