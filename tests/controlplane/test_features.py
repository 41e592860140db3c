"""What an API server says that it has."""

from __future__ import annotations

import pytest

from tests.controlplane.features import POLICIES, RESIZE, Features, Gate, Served, gates

METRICS = """
# TYPE kubernetes_feature_enabled gauge
kubernetes_feature_enabled{name="ContextualLogging",stage="BETA"} 1
kubernetes_feature_enabled{name="InPlacePodVerticalScaling",stage="ALPHA"} 0
kubernetes_feature_enabled{name="WatchList",stage=""} 1
kubernetes_build_info{git_version="v1.30.14"} 1
"""

FOUND = Features("v1.30.14", frozenset({RESIZE}), gates(METRICS))
NOT = "Kubernetes v1.30.14 does not have "


def test_feature_gates_are_read_from_metrics() -> None:
    assert gates(METRICS) == {
        "ContextualLogging": True,
        "InPlacePodVerticalScaling": False,
        "WatchList": True,
    }


@pytest.mark.parametrize(
    ("feature", "sentence"),
    [
        (RESIZE, ""),
        (POLICIES, f"{NOT}mutatingadmissionpolicies"),
        (Gate("WatchList"), ""),
        (Gate("InPlacePodVerticalScaling"), f"{NOT}the feature gate InPlacePodVerticalScaling on"),
        (Gate("InPlacePodVerticalScaling", is_on=False), ""),
        (Gate("New", is_on=False), f"{NOT}the feature gate New"),
    ],
    ids=str,
)
def test_what_is_not_there_is_named(feature: Served | Gate, sentence: str) -> None:
    assert FOUND.missing(feature) == sentence
