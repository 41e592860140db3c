"""Pods beside other pods: spreading, affinity and anti-affinity, and what these score."""

from __future__ import annotations

import pytest

from tests.quota.nodes.objects import Object, assigned, node, pod
from webhook.quota.nodes.fitting import judge_nodes
from webhook.quota.nodes.model import NodeView

ZONES = [
    node("a1", labels={"zone": "a"}),
    node("a2", labels={"zone": "a"}),
    node("b1", labels={"zone": "b"}),
    node("x1"),
]
WEB = {"app": "web"}
SKEWED = "node(s) didn't match pod topology spread constraints"
AFFINITY = "node(s) didn't match pod affinity rules"
ANTI_AFFINITY = "node(s) didn't match pod anti-affinity rules"
EXISTING = "node(s) didn't satisfy existing pods anti-affinity rules"


def spread(
    max_skew: int = 1, action: str = "DoNotSchedule", key: str = "zone", **fields: object
) -> Object:
    constraint = {
        "maxSkew": max_skew,
        "topologyKey": key,
        "whenUnsatisfiable": action,
        "labelSelector": {"matchLabels": WEB},
        **fields,
    }
    return pod(labels=WEB, topologySpreadConstraints=[constraint])


def term(key: str = "zone", app: str = "web", **fields: object) -> Object:
    return {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}, **fields}


def requiring(kind: str, *terms: Object, app: str = "web") -> Object:
    affinity = {kind: {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    return pod(labels={"app": app}, affinity=affinity)


def preferring(kind: str, *terms: Object) -> Object:
    weighted = [{"weight": 10, "podAffinityTerm": one} for one in terms]
    affinity = {kind: {"preferredDuringSchedulingIgnoredDuringExecution": weighted}}
    return pod(labels=WEB, affinity=affinity)


def on(name: str, *pods: Object) -> list[Object]:
    return assigned(pods, to=name)


def web(namespace: str = "team") -> dict[str, object]:
    return pod(labels=WEB) | {"metadata": {"namespace": namespace, "name": "w", "labels": WEB}}


DELETING = web() | {
    "metadata": {"namespace": "team", "labels": WEB, "deletionTimestamp": "2026-01-01T00:00:00Z"}
}
NO_LABEL = f"{SKEWED} (missing required label)"
CASES: dict[str, tuple[Object, list[Object], dict[str, str]]] = {
    "an even spread": (
        spread(),
        [*on("a1", web()), *on("b1", web())],
        {"a1": "", "a2": "", "b1": "", "x1": NO_LABEL},
    ),
    "a zone with more pods": (
        spread(),
        on("a1", web()),
        {"a1": SKEWED, "a2": SKEWED, "b1": "", "x1": NO_LABEL},
    ),
    "a larger skew": (spread(2), on("a1", web()), {"a1": "", "a2": "", "b1": "", "x1": NO_LABEL}),
    "too few zones count as empty ones": (
        spread(minDomains=3),
        [*on("a1", web()), *on("b1", web())],
        {"a1": SKEWED, "a2": SKEWED, "b1": SKEWED, "x1": NO_LABEL},
    ),
    "a deleted pod and one of another namespace do not count": (
        spread(),
        [*on("a1", DELETING), *on("a2", web("other"))],
        {"a1": "", "a2": "", "b1": "", "x1": NO_LABEL},
    ),
    "affinity to itself lets the first pod in, where the label is": (
        requiring("podAffinity", term()),
        [],
        {"a1": "", "a2": "", "b1": "", "x1": AFFINITY},
    ),
    "affinity to another pod does not": (
        requiring("podAffinity", term(app="db")),
        [],
        dict.fromkeys(("a1", "a2", "b1", "x1"), AFFINITY),
    ),
    "affinity holds in the whole zone": (
        requiring("podAffinity", term()),
        on("a1", web()),
        {"a1": "", "a2": "", "b1": AFFINITY, "x1": AFFINITY},
    ),
    "another namespace is not meant": (
        requiring("podAffinity", term(), app="api"),
        on("a1", web("other")),
        dict.fromkeys(("a1", "a2", "b1", "x1"), AFFINITY),
    ),
    "another namespace by its name": (
        requiring("podAffinity", term(namespaces=["other"])),
        on("a1", web("other")),
        {"a1": "", "a2": "", "b1": AFFINITY, "x1": AFFINITY},
    ),
    "another namespace by its labels": (
        requiring("podAffinity", term(namespaceSelector={"matchLabels": {"env": "test"}})),
        on("a1", web("other")),
        {"a1": "", "a2": "", "b1": AFFINITY, "x1": AFFINITY},
    ),
    "every namespace": (
        requiring("podAntiAffinity", term(namespaceSelector={})),
        on("a1", web("other")),
        {"a1": ANTI_AFFINITY, "a2": ANTI_AFFINITY, "b1": "", "x1": ""},
    ),
    "anti-affinity": (
        requiring("podAntiAffinity", term("kubernetes.io/hostname")),
        on("a1", web()),
        {"a1": ANTI_AFFINITY, "a2": "", "b1": "", "x1": ""},
    ),
    "anti-affinity of a pod that runs": (
        pod(labels=WEB),
        on("a1", requiring("podAntiAffinity", term(), app="db")),
        {"a1": EXISTING, "a2": EXISTING, "b1": "", "x1": ""},
    ),
    "keys whose values have to agree": (
        requiring("podAntiAffinity", term(matchLabelKeys=["version"])),
        on("a1", web()),
        {"a1": ANTI_AFFINITY, "a2": ANTI_AFFINITY, "b1": "", "x1": ""},
    ),
}


@pytest.mark.parametrize(("wanted", "others", "expected"), CASES.values(), ids=CASES.keys())
def test_refuses_nodes_by_the_pods_around(
    wanted: Object, others: list[Object], expected: dict[str, str]
) -> None:
    namespaces = [{"metadata": {"name": "other", "labels": {"env": "test"}}}]
    verdicts = judge_nodes(wanted, NodeView(ZONES, others, namespaces=namespaces))
    reasons = {one.node: ", ".join(one.reasons) for one in verdicts.rejected}
    assert reasons | {one.name: "" for one in verdicts.fits} == expected
    assert not verdicts.unknown


def test_names_namespaces_that_it_would_have_to_know() -> None:
    wanted = requiring("podAffinity", term(namespaceSelector={"matchLabels": {"env": "test"}}))
    assert judge_nodes(wanted, NodeView(ZONES, on("a1", web("other")))).unknown == ("namespaces",)


SCORES: dict[str, tuple[Object, str, dict[str, int]]] = {
    "spreading prefers fewer pods": (
        spread(action="ScheduleAnyway"),
        "PodTopologySpread",
        {"a1": 0, "a2": 0, "b1": 200, "x1": 0},
    ),
    "spreading over nodes": (
        spread(action="ScheduleAnyway", key="kubernetes.io/hostname"),
        "PodTopologySpread",
        {"a1": 0, "a2": 200, "b1": 200, "x1": 200},
    ),
    "preferred affinity": (
        preferring("podAffinity", term()),
        "InterPodAffinity",
        {"a1": 200, "a2": 200, "b1": 0, "x1": 0},
    ),
    "preferred anti-affinity": (
        preferring("podAntiAffinity", term()),
        "InterPodAffinity",
        {"a1": 0, "a2": 0, "b1": 200, "x1": 200},
    ),
}


@pytest.mark.parametrize(("wanted", "plugin", "expected"), SCORES.values(), ids=SCORES.keys())
def test_scores_nodes_by_the_pods_around(
    wanted: Object, plugin: str, expected: dict[str, int]
) -> None:
    verdicts = judge_nodes(wanted, NodeView(ZONES, on("a1", web())))
    assert {one.name: one.plugins[plugin] for one in verdicts.fits} == expected


def test_required_affinity_of_pods_that_run_attracts() -> None:
    others = on("b1", requiring("podAffinity", term(), app="db"))
    verdicts = judge_nodes(pod(labels=WEB), NodeView(ZONES, others))
    assert {one.name: one.plugins["InterPodAffinity"] for one in verdicts.fits} == {
        "a1": 0,
        "a2": 0,
        "b1": 200,
        "x1": 0,
    }
