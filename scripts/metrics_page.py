"""What scripts/docs writes of docs/metrics.md: a row for each metric, from their declarations."""

from __future__ import annotations

import inspect
from pathlib import Path

from prometheus_client import CollectorRegistry

from webhook.telemetry.metrics import Declarations, Declared, Metrics

PAGE = Path(__file__).resolve().parent.parent / "docs" / "metrics.md"

HEAD = """\
# Metrics

<!-- Written by scripts/docs from webhook/telemetry/metrics.py; do not edit. -->

`/metrics` on port 8080 of every webhook and controller pod, over plain HTTP; the Service
`deferred-quota-metrics` selects all of them. Every process shows all metrics; those of a part that
it does not run stay at 0 or have no series, and those of controllers have values where it leads.
Beside them stand those of the process (`process_cpu_seconds_total`, `process_resident_memory_bytes`
and the like). A histogram has the series `_bucket`, `_sum` and `_count`.

Values of labels come from closed sets, so that clients cannot make series; `quota`, `victim` and
`beneficiary` name the elastic quotas that there are. Alerts and a dashboard are in
`manifests/components/monitoring`, what to do about them in
[operations/runbooks.md](operations/runbooks.md).
"""


def groups() -> list[tuple[str, list[Declared]]]:
    """Return the metrics of each part of the program, under what the part is called."""
    parts = (type(part) for part in vars(Metrics()).values())
    made = []
    for part in parts:
        if part.__module__ == Metrics.__module__:
            declarations = Declarations(CollectorRegistry())
            part(declarations)
            made.append((inspect.getdoc(part) or "", declarations.declared))
    return made


def page() -> str:
    """Return the whole document."""
    lines = [HEAD]
    for title, metrics in groups():
        lines += [f"## {title.splitlines()[0].rstrip('.')}", ""]
        lines += ["| metric | type | labels | meaning |", "| --- | --- | --- | --- |"]
        lines += [_row(metric) for metric in metrics]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _row(metric: Declared) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    return f"| `{metric.name}` | {metric.type} | {labels} | {metric.text} |"


if __name__ == "__main__":
    PAGE.write_text(page())
    print(PAGE)
