"""Declarations of metrics in a registry, with the project's prefix; kept for the documentation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

PREFIX: Final = "deferred_quota"

_MetricT = TypeVar("_MetricT", Counter, Gauge, Histogram)


@dataclass(frozen=True, slots=True)
class Declared:
    """A metric as it was declared."""

    name: str
    """As in a query: with the prefix, and `_total` for a counter."""
    type: str
    """`counter`, `gauge` or `histogram`."""
    labels: tuple[str, ...]
    text: str


class Declarations:
    """Makes metrics in one registry.

    Attributes:
        declared: What was made, in this order.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.declared: list[Declared] = []
        self._registry = registry

    def counter(self, name: str, text: str, *labels: str) -> Counter:
        """Make a counter; `name` goes without `_total`."""
        made = Counter(name, text, labels, namespace=PREFIX, registry=self._registry)
        return self._kept(made, Declared(f"{PREFIX}_{name}_total", "counter", labels, text))

    def gauge(self, name: str, text: str, *labels: str) -> Gauge:
        """Make a gauge."""
        made = Gauge(name, text, labels, namespace=PREFIX, registry=self._registry)
        return self._kept(made, Declared(f"{PREFIX}_{name}", "gauge", labels, text))

    def histogram(
        self, name: str, text: str, buckets: tuple[float, ...], *labels: str
    ) -> Histogram:
        """Make a histogram with these upper bounds."""
        made = Histogram(
            name, text, labels, namespace=PREFIX, registry=self._registry, buckets=buckets
        )
        return self._kept(made, Declared(f"{PREFIX}_{name}", "histogram", labels, text))

    def _kept(self, metric: _MetricT, declared: Declared) -> _MetricT:
        self.declared.append(declared)
        return metric
