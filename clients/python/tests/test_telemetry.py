"""Tests of spans and metrics, with the in-memory exporters of OpenTelemetry's SDK."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from tests.flavours import FLAVOURS, make_client
from tests.service import Tollgate
from tollgate_limits import NoAnswerError


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_spans_and_metrics(tollgate: Tollgate, flavour: str) -> None:
    exporter, reader = InMemorySpanExporter(), InMemoryMetricReader()
    tracing = TracerProvider()
    tracing.add_span_processor(SimpleSpanProcessor(exporter))
    options: dict[str, Any] = {
        "domain": "edge",
        "deadline": 5,
        "tracer_provider": tracing,
        "meter_provider": MeterProvider([reader]),
    }
    with make_client(flavour, tollgate.address, **options) as client:
        for _ in range(6):
            client.check([{"user": "a secret"}])
        client.peek([{"user": "a secret"}])
        reservation = client.reserve([{"budget": "a secret"}], hits=8)
        reservation.extend(60)
        reservation.commit(1)
        reservation.release()
        tollgate.kill()
        client.check([{"user": "another secret"}])
        with pytest.raises(NoAnswerError):
            client.peek([{"user": "a secret"}])

    spans = exporter.get_finished_spans()
    names = ["check"] * 6 + ["peek", "reserve", "extend", "commit", "release", "check", "peek"]
    assert [span.name for span in spans] == [f"tollgate.{name}" for name in names]
    assert {span.kind for span in spans} == {SpanKind.CLIENT}
    assert dict(spans[5].attributes or {}) == {
        "tollgate.domain": "edge",
        "tollgate.source": "server",
        "tollgate.verdict": "over_limit",
    }
    assert dict(spans[11].attributes or {}) == {
        "tollgate.domain": "edge",
        "tollgate.source": "allow",
        "tollgate.verdict": "ok",
    }
    statuses = [span.status.status_code for span in spans]
    assert statuses == [StatusCode.UNSET] * 11 + [StatusCode.ERROR] * 2
    assert "secret" not in "".join(span.to_json() for span in spans)

    data = reader.get_metrics_data()
    assert data is not None
    [scope] = data.resource_metrics[0].scope_metrics
    points: dict[str, Any] = {
        metric.name: {
            tuple((point.attributes or {}).values()): point for point in metric.data.data_points
        }
        for metric in scope.metrics
    }
    attributes = {
        name for one in points.values() for point in one.values() for name in point.attributes or ()
    }
    assert attributes == {"tollgate.source", "tollgate.verdict"}
    decisions: Any = points["tollgate.client.decisions"]
    assert {key: point.value for key, point in decisions.items()} == {
        ("server", "ok"): 6,  # five checks and a reservation
        ("server", "over_limit"): 1,
        ("allow", "ok"): 1,
    }
    durations: Any = points["tollgate.client.duration"]
    assert {key: point.count for key, point in durations.items()} == {
        ("server",): 6,
        ("allow",): 1,
    }
    assert 0 < durations[("server",)].sum < 5
