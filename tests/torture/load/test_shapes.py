"""The torture's pods and quotas: every kind is there, and the observer can count them all."""

from __future__ import annotations

import random

from tests.torture.load.books import Books, Known
from tests.torture.load.shapes import (
    GOLD,
    SCOPED_ANEW,
    TARGET_PODS,
    a_pod,
    a_size,
    binding,
    is_held,
    quota,
    quota_specs,
    spaces,
)
from tests.torture.observer.amounts import billionths
from tests.torture.observer.usage import (
    DEFERRED_KEYS,
    Expression,
    expressions,
    pod_usage,
    traits_of,
)

RNG = random.Random(5)  # noqa: S311 - repeatable
PODS = [a_pod(RNG, f"p{number}", scheduler="s") for number in range(2000)]


def test_pods_differ_in_everything_that_quotas_look_at() -> None:
    traits = {traits_of(pod) for pod in PODS}
    assert {each.priority_class for each in traits} == {"", GOLD}
    assert {each.has_deadline for each in traits} == {True, False}
    assert {each.is_best_effort for each in traits} == {True, False}
    assert any(pod["spec"].get("initContainers") for pod in PODS)
    assert any(len(pod["spec"]["containers"]) > 1 for pod in PODS)
    assert {"finalizers" in pod["metadata"] for pod in PODS} == {True, False}


def test_every_container_names_what_any_quota_limits() -> None:
    for pod in PODS:
        usage = pod_usage(pod)
        assert set(usage) == set(DEFERRED_KEYS)
        assert usage["requests.cpu"] <= usage["limits.cpu"]
        assert usage["requests.memory"] <= usage["limits.memory"]


def test_limits_are_never_below_requests() -> None:
    for is_equal in (True, False):
        for _ in range(200):
            size = a_size(RNG, is_equal=is_equal)
            below = [
                billionths(size["requests"][key]) - billionths(size["limits"][key])
                for key in ("cpu", "memory")
            ]
            assert all(each == 0 if is_equal else each < 0 for each in below)


def test_quotas_are_tight_and_overlap() -> None:
    for space in spaces(4):
        specs = quota_specs(space)
        selected = [
            sum(
                all(each.selects(traits_of(pod)) for each in expressions(spec))
                for spec in specs.values()
            )
            for pod in PODS[:200]
        ]
        assert min(selected) >= 3
        total = sum(pod_usage(pod)["requests.cpu"] for pod in PODS[: 2 * TARGET_PODS])
        assert total > billionths(specs["all"]["hard"]["requests.cpu"])


def test_every_style_of_namespace_is_there_and_specs_are_not_shared() -> None:
    made = spaces(8)
    assert len({space.name for space in made}) == 8
    for style in ("is_scheduled", "is_edited", "is_wild", "has_counts", "has_bystander"):
        assert {getattr(space, style) for space in made[:4]} == {True, False}
    for style in ("is_paced", "is_moved", "lets_through", "shares_cluster_quota"):
        assert {getattr(space, style) for space in made} == {True, False}
    assert {space.gating for space in made} == {"never", "always", "auto"}
    untouched = made[0]
    styles = (untouched.is_edited, untouched.is_wild, untouched.is_scheduled)
    assert not any(styles)
    quota_specs(made[0])["all"]["hard"]["cpu"] = "1"
    assert "cpu" not in quota_specs(made[0])["all"]["hard"]


def test_scopes_to_be_made_anew_can_be_read() -> None:
    for each in SCOPED_ANEW:
        assert all(isinstance(one, Expression) for one in expressions(each))
        assert quota("q", {"hard": {}, **each})["spec"]["hard"] == {}


def test_bindings_carry_a_uid_only_when_asked() -> None:
    assert "uid" not in binding("p", "n")["metadata"]
    assert binding("p", "n", uid="u")["metadata"]["uid"] == "u"


def test_some_pods_are_held() -> None:
    assert [name for name in ("p7", "p8", "p17") if is_held(name)] == ["p7", "p17"]


def test_what_is_taken_from_the_books_is_in_one_hand() -> None:
    books = Books(spaces(1)[0])
    rng = random.Random(1)  # noqa: S311 - repeatable
    pod = Known(books.next_name(), "u")
    books.put(books.waiting, pod)
    assert books.peek(books.waiting, rng) is pod
    assert books.take(books.waiting, rng) is pod
    assert books.take(books.waiting, rng) is None
    assert books.peek(books.waiting, rng) is None
    assert books.next_name() != pod.name
