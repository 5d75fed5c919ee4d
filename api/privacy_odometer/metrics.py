"""GET /metrics: the counts of this process, in Prometheus' text format.

The charge route adds to plain integers. They become metrics only when Prometheus asks.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Final

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from odometer_accountant.errors import BudgetExceeded, InternalError, OdometerError, Unsure
from odometer_accountant.writer.stats import SIZES
from odometer_accountant.writer.writer import LedgerWriter

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST
OUTCOMES: Final = ("admitted", "replayed", "refused", "unsure", "invalid")
LATENCIES_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


def outcome_of(error: OdometerError) -> str:
    """The one of `OUTCOMES` that this error counts as."""
    if isinstance(error, BudgetExceeded):
        return "refused"
    return "unsure" if isinstance(error, Unsure | InternalError) else "invalid"


class ChargeCounts:
    """Charges by outcome and latency, and refusals by reason. Written by the event loop alone."""

    def __init__(self) -> None:
        self.refusals: dict[tuple[str, str], int] = {}
        """By kind of request and code of the error."""
        self.by_latency = {outcome: [0] * (len(LATENCIES_S) + 1) for outcome in OUTCOMES}
        self.seconds = dict.fromkeys(OUTCOMES, 0.0)

    def add(self, outcome: str, seconds: float) -> None:
        """Count a charge that was answered `seconds` after the start of its request."""
        self.by_latency[outcome][bisect_left(LATENCIES_S, seconds)] += 1
        self.seconds[outcome] += seconds

    def refuse(self, request: str, error: OdometerError) -> None:
        """Count a refused request. Faults of the service (5xx) are not refusals."""
        if error.status < 500:
            kind = (request, error.code)
            self.refusals[kind] = self.refusals.get(kind, 0) + 1


def registry_of(writer: LedgerWriter, charges: ChargeCounts) -> CollectorRegistry:
    """A registry of this service, with the process' memory, processor time and open files."""
    registry = CollectorRegistry()
    registry.register(_Service(writer, charges))
    ProcessCollector(registry=registry)
    return registry


def page(registry: CollectorRegistry) -> bytes:
    """The text that Prometheus reads."""
    return bytes(generate_latest(registry))


class _Service(Collector):
    def __init__(self, writer: LedgerWriter, charges: ChargeCounts) -> None:
        self._writer = writer
        self._charges = charges

    def collect(self) -> Iterator[Metric]:
        """Every metric of the service, as of now."""
        yield from self._of_charges()
        yield from self._of_the_writer()
        counts = self._writer.stats
        yield CounterMetricFamily(
            "odometer_ledger_frozen",
            "Times a ledger was frozen because its history was rolled back or contradicts itself",
            value=counts.freezes,
        )
        yield GaugeMetricFamily(
            "odometer_ledgers_frozen", "Ledgers that this process knows to be frozen", value=counts.frozen
        )

    def _of_charges(self) -> Iterator[Metric]:
        answered = CounterMetricFamily("odometer_charges", "Charges answered", labels=["outcome"])
        latency = HistogramMetricFamily(
            "odometer_charge_seconds",
            "From reading a charge's request to its answer",
            labels=["outcome"],
        )
        for outcome, counts in self._charges.by_latency.items():
            answered.add_metric([outcome], sum(counts))
            latency.add_metric([outcome], _buckets(LATENCIES_S, counts), self._charges.seconds[outcome])
        yield answered
        yield latency
        refused = CounterMetricFamily(
            "odometer_refusals", "Requests refused, by reason", labels=["request", "reason"]
        )
        for (request, reason), number in list(self._charges.refusals.items()):
            refused.add_metric([request, reason], number)
        yield refused

    def _of_the_writer(self) -> Iterator[Metric]:
        writer, counts = self._writer, self._writer.stats
        yield GaugeMetricFamily(
            "odometer_teller_alive", "1 while the thread that writes the ledger runs", value=writer.alive
        )
        yield GaugeMetricFamily(
            "odometer_teller_waiting", "Commands in the ledger's queue", value=writer.waiting
        )
        yield GaugeMetricFamily(
            "odometer_teller_stuck_seconds",
            "Seconds that the append in flight has taken so far, 0 when there is none",
            value=writer.stuck_s,
        )
        sizes = HistogramMetricFamily("odometer_teller_batch_size", "Commands that shared one append")
        sizes.add_metric([], _buckets([2**i for i in range(SIZES)], counts.batch_sizes), counts.commands)
        yield sizes
        yield CounterMetricFamily(
            "odometer_teller_stale_heads",
            "Appends that lost a race against another process, and were decided again",
            value=counts.stale_heads,
        )
        yield CounterMetricFamily(
            "odometer_teller_appends_failed",
            "Appends that the store did not confirm as durable",
            value=counts.appends_failed,
        )


def _buckets(bounds: Sequence[float], counts: Sequence[int]) -> list[tuple[str, float]]:
    """Cumulative (bound, count) pairs, the last one without a bound."""
    names = [*(str(float(bound)) for bound in bounds), "+Inf"]
    return list(zip(names, accumulate(counts), strict=True))
