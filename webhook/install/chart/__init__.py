"""The Helm chart, generated from the objects that an installation renders.

Belongs here: which parts of the objects become values of the chart, the table of these values, and
the files. Does not: what an object looks like (`manifests/`, `install.rendering`), and what a
template computes (`charts/deferred-quota/templates/_helpers.tpl`, written by hand).
"""

from webhook.install.chart.files import CHART, chart_files

__all__ = ["CHART", "chart_files"]
