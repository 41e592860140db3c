"""The observer's own arithmetic and rules."""

from __future__ import annotations

from typing import Any

import pytest

from tests.torture.observer.amounts import NANO, billionths, spelled
from tests.torture.observer.usage import Expression, Traits, expressions, pod_usage, traits_of

QUANTITIES = {
    "1": NANO,
    "250m": NANO // 4,
    "0.5": NANO // 2,
    ".5": NANO // 2,
    "1.": NANO,
    "+2": 2 * NANO,
    "-1": -NANO,
    "1Ki": 1024 * NANO,
    "0.1Gi": 107374182400000000,
    "100M": 10**8 * NANO,
    "1k": 1000 * NANO,
    "3e2": 300 * NANO,
    "5E-1": NANO // 2,
    "2E": 2 * 10**18 * NANO,
    "7u": 7000,
    "9n": 9,
    "0.1n": 1,
    "-0.1n": -1,
    "1.0000000001": NANO + 1,
}


@pytest.mark.parametrize(("text", "expected"), QUANTITIES.items())
def test_quantities_are_exact(text: str, expected: int) -> None:
    assert billionths(text) == expected


@pytest.mark.parametrize("text", ["", "one", "1Zi", "1 ", "1e", "1mm", "--1", "1KI"])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a quantity"):
        billionths(text)


def test_amounts_are_spelled_exactly() -> None:
    assert spelled({"b": 1, "a": -1_500_000_000, "c": 3 * NANO}) == "a=-1.5,b=0.000000001,c=3"


def container(name: str = "c", cpu: str = "", limit: str = "", **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "resources": {
            **({"requests": {"cpu": cpu}} if cpu else {}),
            **({"limits": {"cpu": limit}} if limit else {}),
        },
        **more,
    }


def pod(
    *containers: dict[str, Any],
    init: tuple[dict[str, Any], ...] = (),
    status: dict[str, Any] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    return {
        "metadata": {"name": "p"},
        "spec": {"containers": list(containers), "initContainers": list(init), **spec},
        "status": status or {},
    }


def cores(usage: dict[str, int], key: str = "requests.cpu") -> float | None:
    return usage[key] / NANO if key in usage else None


SIDECAR = {"restartPolicy": "Always"}
LIVES = {
    "containers add up": (pod(container("a", "1"), container("b", "500m")), 1.5),
    "the largest init container counts alone": (
        pod(container(cpu="1"), init=(container("i", "4"), container("j", "3"))),
        4.0,
    ),
    "an init container runs beside earlier sidecars": (
        pod(container(cpu="1"), init=(container("s", "500m", **SIDECAR), container("i", "3"))),
        3.5,
    ),
    "and not beside later ones": (
        pod(container(cpu="1"), init=(container("i", "3"), container("s", "500m", **SIDECAR))),
        3.0,
    ),
    "sidecars run beside containers": (
        pod(container(cpu="1"), init=(container("s", "2", **SIDECAR),)),
        3.0,
    ),
    "nothing asked for is no key": (pod(container()), None),
    "zero is a key": (pod(container(cpu="0")), 0.0),
}


@pytest.mark.parametrize(("made", "expected"), LIVES.values(), ids=LIVES.keys())
def test_requests_are_the_most_that_runs_at_once(
    made: dict[str, Any], expected: float | None
) -> None:
    usage = pod_usage(made)
    assert cores(usage) == cores(usage, "cpu") == expected


def test_limits_have_only_their_own_key() -> None:
    assert pod_usage(pod(container(limit="2"))) == {"limits.cpu": 2 * NANO}


def status_of(actual: str, allocated: str, **more: Any) -> dict[str, Any]:
    return {
        "containerStatuses": [
            {
                "name": "c",
                "resources": {"requests": {"cpu": actual}},
                "allocatedResources": {"cpu": allocated},
            }
        ],
        **more,
    }


INFEASIBLE = {"conditions": [{"type": "PodResizePending", "reason": "Infeasible"}]}
RESIZES = {
    "a shrink counts when the node has done it": ("1", status_of("2", "1"), 2.0),
    "what is set aside counts": ("1", status_of("1", "3"), 3.0),
    "growth counts at once": ("4", status_of("2", "2"), 4.0),
    "growth that can never be does not": ("4", status_of("2", "2", **INFEASIBLE), 2.0),
    "a status without resources says nothing": (
        "1",
        {"containerStatuses": [{"name": "c", "allocatedResources": {"cpu": "9"}}]},
        1.0,
    ),
}


@pytest.mark.parametrize(("wanted", "status", "expected"), RESIZES.values(), ids=RESIZES.keys())
def test_resizes_count_as_the_node_reports_them(
    wanted: str, status: dict[str, Any], expected: float
) -> None:
    assert cores(pod_usage(pod(container(cpu=wanted), status=status))) == expected


def test_a_pod_that_these_rules_do_not_know_is_refused() -> None:
    with pytest.raises(ValueError, match="pod-level resources"):
        pod_usage(pod(container(), overhead={"cpu": "1"}))


TRAITS = {
    "no requests": (pod(container()), Traits(is_best_effort=True)),
    "requests of zero": (pod(container(cpu="0")), Traits(is_best_effort=True)),
    "a request": (pod(container(cpu="1")), Traits()),
    "a limit": (pod(container(limit="1")), Traits()),
    "a deadline": (
        pod(container(cpu="1"), activeDeadlineSeconds=0),
        Traits(has_deadline=True),
    ),
    "a class": (pod(container(cpu="1"), priorityClassName="g"), Traits(priority_class="g")),
    "the recorded class of service wins": (
        pod(container(cpu="1"), status={"qosClass": "BestEffort"}),
        Traits(is_best_effort=True),
    ),
}


@pytest.mark.parametrize(("made", "expected"), TRAITS.values(), ids=TRAITS.keys())
def test_traits(made: dict[str, Any], expected: Traits) -> None:
    assert traits_of(made) == expected


NONE, GOLD, SHORT, IDLE = (
    Traits(),
    Traits(priority_class="gold"),
    Traits(has_deadline=True),
    Traits(is_best_effort=True),
)
SELECTIONS = {
    "exists": (Expression("PriorityClass"), {GOLD}),
    "does not exist": (Expression("PriorityClass", "DoesNotExist"), {NONE, SHORT, IDLE}),
    "in": (Expression("PriorityClass", "In", ("gold", "")), {GOLD}),
    "not in": (Expression("PriorityClass", "NotIn", ("gold",)), {NONE, SHORT, IDLE}),
    "terminating": (Expression("Terminating"), {SHORT}),
    "not terminating": (Expression("NotTerminating"), {NONE, GOLD, IDLE}),
    "best effort": (Expression("BestEffort"), {IDLE}),
    "not best effort": (Expression("NotBestEffort"), {NONE, GOLD, SHORT}),
}


@pytest.mark.parametrize(("expression", "chosen"), SELECTIONS.values(), ids=SELECTIONS.keys())
def test_scopes_select(expression: Expression, chosen: set[Traits]) -> None:
    assert {each for each in (NONE, GOLD, SHORT, IDLE) if expression.selects(each)} == chosen


def test_scopes_and_selector_are_read_together() -> None:
    spec = {
        "scopes": ["Terminating"],
        "scopeSelector": {
            "matchExpressions": [
                {"scopeName": "PriorityClass", "operator": "In", "values": ["gold"]}
            ]
        },
    }
    assert expressions(spec) == (
        Expression("Terminating"),
        Expression("PriorityClass", "In", ("gold",)),
    )
