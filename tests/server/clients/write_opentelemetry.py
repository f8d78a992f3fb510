"""Writes metrics with OpenTelemetry's SDK: write_opentelemetry.py (otlp|remote_write) URL"""

import itertools
import sys

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.prometheus_remote_write import (
    PrometheusRemoteWriteMetricsExporter,
)
from opentelemetry.metrics import Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    MetricExportResult,
    PeriodicExportingMetricReader,
)
from opentelemetry.sdk.resources import Resource

EXPORTERS = {
    "otlp": OTLPMetricExporter,
    "remote_write": PrometheusRemoteWriteMetricsExporter,
}


def main(kind, url):
    exporter = EXPORTERS[kind](endpoint=url)
    results = []
    export = exporter.export

    def recorded_export(*args, **kwargs):
        result = export(*args, **kwargs)
        results.append(result)
        return result

    exporter.export = recorded_export
    resource = Resource.create(
        {"service.name": "cart", "service.namespace": "shop", "host.name": "h"}
    )
    provider = MeterProvider([PeriodicExportingMetricReader(exporter)], resource)
    meter = provider.get_meter("clients")

    orders = meter.create_counter("orders")
    attributes = [("zone", "z"), ("app", "a"), ("http.method", "GET"), ("_x", "1")]
    for number, pairs in enumerate(itertools.permutations(attributes), 1):
        orders.add(number, {**dict(pairs), "number": number, "empty": ""})
    meter.create_up_down_counter("queue.length").add(7, {"queue": "q"})
    meter.create_observable_gauge(
        "temperature", [lambda _: [Observation(21.5, {"room": "r"})]], unit="Cel"
    )
    latency = meter.create_histogram("latency", unit="s")
    for seconds in (0.0, 0.004, 7.0, 20_000.0):
        latency.record(seconds, {"route": "/", "Code": "200"})
    provider.shutdown()
    if not results or any(result != MetricExportResult.SUCCESS for result in results):
        sys.exit(f"not exported: {results}")


main(*sys.argv[1:])
