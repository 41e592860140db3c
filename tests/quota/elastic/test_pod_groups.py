"""Which pods are evicted together: by a label, by a PodGroup, and by both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.quota.elastic.pools import Cluster, a_quota, uids
from webhook.jsonfields.reader import FieldReader
from webhook.quota.elastic.capacity import ElasticPod
from webhook.quota.elastic.pod_groups import PodGroups, pod_group_of, with_units
from webhook.quota.elastic.victims import Circumstances

Raw = dict[str, object]


def a_pod_group(name: str, mode: object = "PodGroup") -> Raw:
    return {"metadata": {"name": name}, "spec": {"disruptionMode": mode}}


MODES = {
    "1.36": ("PodGroup", True),
    "1.37": ({"all": {}}, True),
    "1.36, one by one": ("Pod", False),
    "1.37, one by one": ({"single": {}}, False),
    "1.37, both": ({"single": {}, "all": None}, False),
    "absent": (None, False),
    "another word": ("All", False),
    "no word": (7, False),
}


@pytest.mark.parametrize(("mode", "expected"), MODES.values(), ids=MODES)
def test_a_mode_says_whether_pods_go_together(mode: object, *, expected: bool) -> None:
    groups = PodGroups(lambda _namespace: [a_pod_group("g", mode)])
    assert groups.is_disrupted_whole("b", "g") is expected


@pytest.mark.parametrize("raw", [{"metadata": {"name": "g"}}, {**a_pod_group("g"), "spec": None}])
def test_a_pod_group_without_a_spec_has_no_mode(raw: Raw) -> None:
    assert not PodGroups(lambda _namespace: [raw]).is_disrupted_whole("b", "g")


def test_a_name_is_of_its_namespace_and_looked_up_once() -> None:
    asked = []

    def of_namespace(namespace: str) -> list[Raw]:
        asked.append(namespace)
        return [a_pod_group("g")] if namespace == "b" else []

    groups = PodGroups(of_namespace)
    found = [groups.is_disrupted_whole(*one) for one in (("b", "g"), ("b", "h"), ("a", "g"))]
    assert (found, asked) == ([True, False, False], ["b", "a"])


def test_pod_groups_without_end_are_not_all_looked_at() -> None:
    numbers = count()

    def of_namespace(_namespace: str) -> Iterator[Raw]:
        return (a_pod_group(f"g{number}") for number in numbers)

    groups = PodGroups(of_namespace)
    assert groups.is_disrupted_whole("b", "g0")
    assert groups.is_disrupted_whole("b", "g9999")
    assert not groups.is_disrupted_whole("b", "g10000")
    assert next(numbers) <= 10_001


def test_a_pod_names_its_pod_group() -> None:
    spec = {"schedulingGroup": {"podGroupName": "train"}}
    assert pod_group_of(FieldReader({"spec": spec})) == "train"
    assert pod_group_of(FieldReader({"spec": {}})) == ""


def units(pods: Sequence[ElasticPod]) -> set[frozenset[str]]:
    """Return the uids of the pods of each unit."""
    found: dict[tuple[str, str], set[str]] = {}
    for pod in pods:
        found.setdefault((pod.namespace, pod.group or f"\0{pod.uid}"), set()).add(pod.uid)
    return {frozenset(one) for one in found.values()}


def expected_units(
    pods: Sequence[ElasticPod], whole: frozenset[tuple[str, str]]
) -> set[frozenset[str]]:
    """Return the same, by joining whatever two pods have to go together until nothing changes."""

    def go_together(one: ElasticPod, other: ElasticPod) -> bool:
        if one.namespace != other.namespace:
            return False
        is_whole = (one.namespace, one.pod_group) in whole
        of_a_label = one.group != "" and one.group == other.group
        return of_a_label or (is_whole and one.pod_group == other.pod_group)

    found = [{pod.uid} for pod in pods]
    for pod in pods:
        for other in pods:
            if go_together(pod, other):
                (first,) = (one for one in found if pod.uid in one)
                (second,) = (one for one in found if other.uid in one)
                if first is not second:
                    found.remove(second)
                    first |= second
    return {frozenset(one) for one in found}


NAMES = ("", "g", "h", "i")


@given(
    st.lists(
        st.tuples(st.sampled_from("xy"), st.sampled_from(NAMES), st.sampled_from(NAMES)),
        max_size=12,
    ),
    st.frozensets(st.tuples(st.sampled_from("xy"), st.sampled_from(NAMES[1:]))),
)
def test_no_label_and_no_pod_group_is_parted(
    fields: list[tuple[str, str, str]], whole: frozenset[tuple[str, str]]
) -> None:
    pods = [
        ElasticPod(namespace, str(number), str(number), None, 0, {}, group=label, pod_group=name)
        for number, (namespace, label, name) in enumerate(fields)
    ]
    found = with_units(pods, lambda namespace, name: (namespace, name) in whole)
    assert units(found) == expected_units(pods, whole)
    assert [replace(one, group="") for one in found] == [replace(one, group="") for one in pods]


def test_a_long_row_of_groups_is_one() -> None:
    pods = [
        ElasticPod(
            "x", str(number), str(number), None, 0, {}, group=str(label), pod_group=str(name)
        )
        for number, (label, name) in enumerate(
            pair for step in range(2000) for pair in ((step, step), (step, step + 1))
        )
    ]
    assert len(units(with_units(pods, lambda _namespace, _name: True))) == 1


def test_only_pods_that_name_a_pod_group_have_it_looked_up() -> None:
    pods = [ElasticPod("x", "p", "p", None, 0, {}, group="g")]

    def fail(namespace: str, name: str) -> bool:
        raise AssertionError((namespace, name))

    assert with_units(pods, fail) == pods


WHOLE = Circumstances(is_disrupted_whole=lambda _namespace, name: name == "whole")


def test_pods_of_a_pod_group_go_together_or_not_at_all() -> None:
    cluster = Cluster(a_quota("a", 20), a_quota("b", 0))
    (alone,) = cluster.run("b", 10)
    gang = cluster.run("b", 5, 5, pod_group="whole")
    small = cluster.plan(cluster.queued("a", 5), WHOLE)
    assert uids(small.victims) == uids(gang)
    large = cluster.plan(cluster.queued("a", 15), WHOLE)
    assert uids(large.victims) == uids([alone, *gang])


@pytest.mark.parametrize("name", ["one-by-one", "gone"])
def test_pods_of_another_pod_group_go_alone(name: str) -> None:
    cluster = Cluster(a_quota("a", 10), a_quota("b", 0))
    _, newest = cluster.run("b", 5, 5, pod_group=name)
    assert cluster.plan(cluster.queued("a", 5), WHOLE).victims == (newest,)


def test_a_pod_group_of_another_namespace_is_another_one() -> None:
    cluster = Cluster(a_quota("a", 10), a_quota("b", 0, namespaces=["x", "y"]))
    cluster.run("x", 5, pod_group="whole")
    (newest,) = cluster.run("y", 5, pod_group="whole")
    assert uids(cluster.plan(cluster.queued("a", 5), WHOLE).victims) == uids([newest])


def test_a_pod_with_a_label_and_a_pod_group_takes_the_pods_of_both_along() -> None:
    cluster = Cluster(a_quota("a", 20), a_quota("b", 0))
    pods = [
        *cluster.run("b", 5, group="label"),
        *cluster.run("b", 5, pod_group="whole"),
        *cluster.run("b", 5, group="label", pod_group="whole"),
    ]
    found = cluster.plan(cluster.queued("a", 10), WHOLE)
    assert uids(found.victims) == uids(pods)
    assert len({pod.group for pod in found.victims}) == 1, "evictions keep them together by it"


def test_a_pod_that_stays_does_not_keep_its_pod_group() -> None:
    cluster = Cluster(a_quota("a", 20), a_quota("b", 10))
    cluster.run("b", 10, pod_group="whole")
    borrowed = cluster.run("b", 10, 10, pod_group="whole")
    assert uids(cluster.plan(cluster.queued("a", 10), WHOLE).victims) == uids(borrowed)
