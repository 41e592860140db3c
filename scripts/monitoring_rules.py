"""What scripts/docs writes of the alerts: `prometheusrule.yaml` for the Prometheus operator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

MONITORING = Path(__file__).resolve().parent.parent / "manifests" / "components" / "monitoring"
RULE = MONITORING / "prometheusrule.yaml"

HEAD = "# Written by scripts/docs from rules.yaml; do not edit.\n"


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as such."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def prometheus_rule() -> str:
    """Return the object with the alerts of rules.yaml."""
    monitor: dict[str, Any] = yaml.safe_load((MONITORING / "servicemonitor.yaml").read_text())
    rule = {
        "apiVersion": monitor["apiVersion"],
        "kind": "PrometheusRule",
        "metadata": monitor["metadata"],
        "spec": yaml.safe_load((MONITORING / "rules.yaml").read_text()),
    }
    return HEAD + yaml.dump(rule, Dumper=_Dumper, sort_keys=False, width=1000)


if __name__ == "__main__":
    RULE.write_text(prometheus_rule())
    print(RULE)
