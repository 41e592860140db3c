"""The Helm chart, generated from the objects that an installation renders.

Belongs here: which parts of the objects become values of the chart, the table of these values, and
the files. Does not: what an object looks like (`manifests/`, `install.rendering`), and what a
template computes (`charts/deferred-quota/templates/_helpers.tpl`, written by hand).
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from webhook import __version__
from webhook.install.chart.places import templates
from webhook.install.chart.values import values, values_file, values_schema, values_table
from webhook.install.installation import OLDEST_MINOR

__all__ = ["CHART", "chart_files"]

CHART: Final = Path(__file__).parents[3] / "charts" / "deferred-quota"
"""Where the chart is in a checkout; it is not part of the Python package."""

_CHART: Final = """\
# Written by scripts/chart; do not edit.
apiVersion: v2
name: deferred-quota
description: Kubernetes ResourceQuota charged where resources are really taken, at the bind
type: application
version: {version}
appVersion: "{version}"
kubeVersion: ">=1.{minor}.0-0"
keywords: [resourcequota, admission-webhook, scheduling, quota]
annotations:
  artifacthub.io/license: Apache-2.0
"""

_README: Final = """\
# Chart deferred-quota

<!-- Written by scripts/chart; do not edit. -->

How to install, upgrade and remove it, and what Helm cannot do, is in
[docs/helm.md](../../docs/helm.md). The templates come from `manifests/`; `_helpers.tpl`,
`NOTES.txt` and `refuse.yaml` are written by hand. `values.schema.json` judges all values: one that
is unknown or wrong is refused before anything is written.

{table}
"""


def chart_files() -> dict[str, str]:
    """Return the text of every generated file, by its path in the chart.

    Raises:
        InstallError: The manifests are not there, or not as they have to be.
    """
    table = values()
    return {
        "Chart.yaml": _CHART.format(version=__version__, minor=OLDEST_MINOR),
        "README.md": _README.format(table="\n".join(values_table(table))),
        "values.yaml": values_file(table),
        "values.schema.json": values_schema(table),
        **{f"templates/{name}.yaml": text for name, text in templates().items()},
    }
