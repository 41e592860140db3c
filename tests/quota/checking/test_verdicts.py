"""Verdicts about the objects of a namespace."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import Object, a_container
from tests.quota.checking.subjects import (
    a_balance,
    a_pod_spec,
    a_subject,
    a_workload,
    amounts,
    an_object,
)
from webhook.quota.amounts.quantity import Quantity
from webhook.quota.checking.rollouts import Rollout
from webhook.quota.checking.values import Balance, Issue, Result, Rule, Terms, Verdict
from webhook.quota.checking.verdicts import check_namespace
from webhook.quota.objects.model import Pod


def judged(
    terms: Terms,
    *objects: Object,
    rollout: Rollout = Rollout.STEADY,
    rollouts: int | None = None,
) -> tuple[Result, ...]:
    subjects = [a_subject(one, terms, rollout) for one in objects]
    return check_namespace(subjects, terms, rollouts=rollouts).results


def verdicts(results: tuple[Result, ...]) -> list[str]:
    return [one.verdict.value for one in results]


def rules(result: Result) -> list[Rule]:
    return [one.rule for one in result.issues]


def a_pod(name: str, cpu: str = "1", **fields: object) -> Object:
    return an_object("Pod", name, a_pod_spec(cpu, **fields))


def test_each_object_finds_taken_what_the_ones_before_it_took() -> None:
    terms = Terms((a_balance(requests_cpu="2"),))
    results = judged(terms, a_pod("a"), a_pod("b"), a_pod("c"))
    assert verdicts(results) == ["admitted", "admitted", "refused"]
    assert results[2].issues[0].text == (
        'pods "c" is forbidden: exceeded quota: team, requested: requests.cpu=1,'
        " used: requests.cpu=2, limited: requests.cpu=2"
    )
    assert [str(one.missing) for one in results[2].issues[0].shortages] == ["1"]


def test_a_workload_waits_where_a_pod_is_refused() -> None:
    terms = Terms((a_balance(requests_cpu="2"),))
    (result,) = judged(terms, a_workload(replicas=5))
    assert result.verdict is Verdict.WAITS
    issue = result.issues[0]
    assert issue.rule is Rule.QUOTA_WAIT
    assert issue.text.startswith("3 of 5 pods are refused until there is room: exceeded quota")
    assert str(issue.shortages[0].missing) == "3"


def test_what_fits_of_a_workload_is_charged() -> None:
    terms = Terms((a_balance(requests_cpu="3", pods="10"),))
    results = judged(terms, a_workload(replicas=2, cpu="2"), a_pod("a"), a_pod("b"))
    assert verdicts(results) == ["waits", "admitted", "refused"]


def test_a_pod_waits_for_a_quota_that_is_charged_at_the_bind() -> None:
    late = a_balance(requests_cpu="1", at_bind=True)
    early = a_balance(pods="2")
    terms = Terms((early, late), is_deferred=True)
    results = judged(terms, a_pod("a"), a_pod("b"), a_pod("c"))
    assert verdicts(results) == ["admitted", "waits", "refused"]
    assert rules(results[1]) == [Rule.QUOTA_WAIT]


def test_a_pod_with_a_node_is_refused_where_others_wait() -> None:
    late = a_balance(requests_cpu="3", at_bind=True)
    terms = Terms((late,), is_deferred=True, is_strict=True)
    large = a_workload(cpu="2", replicas=2)
    pinned, second = (a_pod(name, nodeName="node-1") for name in "ab")
    results = judged(terms, large, pinned, second)
    assert verdicts(results) == ["waits", "admitted", "refused"], "the queue holds it not back"
    (issue,) = results[2].issues
    assert issue.rule is Rule.QUOTA_EXCEEDED
    assert issue.text.startswith('pods "b" is forbidden: exceeded quota: team, requested: ')
    undecided = replace(terms, undecided="too many quotas")
    assert verdicts(judged(undecided, a_pod("c"), pinned)) == ["waits", "refused"]


def test_pods_of_a_workload_with_a_node_are_refused_until_there_is_room() -> None:
    terms = Terms((a_balance(requests_cpu="1", at_bind=True),), is_deferred=True)
    template = {"metadata": {}, "spec": a_pod_spec(nodeName="node-1")}
    (result,) = judged(terms, an_object("Deployment", "web", {"replicas": 2, "template": template}))
    assert result.verdict is Verdict.WAITS
    assert result.issues[0].text.startswith("1 of 2 pods is refused until there is room: ")


def test_a_refused_pod_with_a_node_takes_no_place_of_other_quotas() -> None:
    terms = Terms((a_balance(pods="1"),), is_deferred=True, undecided="too many quotas")
    results = judged(terms, a_pod("a", nodeName="node-1"), a_pod("b"))
    assert Rule.QUOTA_EXCEEDED not in rules(results[1])


def test_in_a_strict_queue_small_pods_wait_behind_large_ones() -> None:
    terms = Terms((a_balance(requests_cpu="4", at_bind=True),), is_deferred=True, is_strict=True)
    large, small = a_workload("Deployment", "large", cpu="3", replicas=2), a_pod("small")
    results = judged(terms, large, small)
    assert verdicts(results) == ["waits", "waits"]
    assert rules(results[1]) == [Rule.QUEUE]
    assert "Deployment large" in results[1].issues[0].text
    free = judged(replace(terms, is_strict=False), large, small)
    assert verdicts(free) == ["waits", "admitted"]


def test_a_pod_of_higher_priority_does_not_wait_behind() -> None:
    terms = Terms((a_balance(requests_cpu="4", at_bind=True),), is_deferred=True, is_strict=True)
    urgent = a_pod("urgent", priority=10)
    results = judged(terms, a_workload(cpu="3", replicas=2), urgent)
    assert verdicts(results) == ["waits", "admitted"]


def test_a_pod_that_asks_nothing_of_the_quota_does_not_wait_behind() -> None:
    terms = Terms(
        (a_balance(requests_cpu="1", at_bind=True),),
        is_deferred=True,
        is_strict=True,
        must_specify=False,
    )
    results = judged(terms, a_pod("a", "1"), a_pod("b", "1"), a_pod("c", ""))
    assert verdicts(results) == ["admitted", "waits", "admitted"]


@pytest.mark.parametrize("at_bind", [False, True])
def test_one_pod_larger_than_the_quota_never_fits(at_bind: bool) -> None:
    terms = Terms((a_balance(requests_cpu="2", at_bind=at_bind),), is_deferred=at_bind)
    (result,) = judged(terms, a_workload(cpu="3"))
    assert (result.verdict, rules(result)) == (Verdict.NEVER_FITS, [Rule.NEVER_FITS])


@pytest.mark.parametrize("is_deferred", [False, True])
def test_what_cannot_be_counted_gets_no_node_where_quotas_are_deferred(is_deferred: bool) -> None:
    balances = (a_balance(pods="9"), a_balance(requests_cpu="9", at_bind=True))
    container = a_container(requests={"cpu": "1"}, limits={"cpu": "1e37"})
    odd = an_object("Pod", "a", {"containers": [container]})
    terms = Terms(balances[: 1 + is_deferred], is_deferred=is_deferred, must_specify=False)
    (result,) = judged(terms, odd)
    if not is_deferred:
        assert result.verdict is Verdict.ADMITTED
        return
    (issue,) = result.issues
    assert (issue.rule, issue.verdict) == (Rule.NEVER_FITS, Verdict.NEVER_FITS)
    assert issue.text == (
        'pods "a" is forbidden: no node is given to it:'
        " spec.containers[0].resources.limits.cpu is too large to be counted"
    )


def test_containers_have_to_state_what_a_quota_limits() -> None:
    (result,) = judged(Terms((a_balance(requests_cpu="2"),)), a_pod("a", ""))
    assert (result.verdict, rules(result)) == (Verdict.REFUSED, [Rule.MUST_SPECIFY])
    assert result.issues[0].text == (
        'pods "a" is forbidden: failed quota: team: must specify requests.cpu for: main'
    )
    assert result.issues[0].unstated == ("requests.cpu",)


def test_objects_are_counted() -> None:
    terms = Terms((a_balance(count_configmaps="1", used=amounts(count_configmaps="1")),))
    (result,) = judged(
        Terms(
            (replace(terms.balances[0], hard={"count/configmaps": Quantity.parse("1")}, used={}),)
        ),
        an_object("ConfigMap", "a"),
    )
    assert result.verdict is Verdict.ADMITTED
    full = Balance(
        terms.balances[0].quota,
        {"count/configmaps": Quantity.parse("1")},
        {"count/configmaps": Quantity.parse("1")},
    )
    (result,) = judged(Terms((full,)), an_object("ConfigMap", "a"))
    assert (result.verdict, rules(result)) == (Verdict.REFUSED, [Rule.OBJECT_QUOTA])
    assert result.issues[0].text.startswith('configmaps "a" is forbidden: exceeded quota: team')


def test_a_quota_with_scopes_counts_no_other_objects_than_pods() -> None:
    terms = Terms((a_balance(services="0", scopes=["NotTerminating"]),))
    assert verdicts(judged(terms, an_object("Service", "a"))) == ["admitted"]


def test_the_pods_of_a_refused_object_are_not_charged() -> None:
    hard = {"count/deployments.apps": Quantity.parse("0"), **amounts(requests_cpu="1")}
    terms = Terms((replace(a_balance(), hard=hard),))
    results = judged(terms, a_workload(), a_pod("a"))
    assert verdicts(results) == ["refused", "admitted"]


def test_an_object_that_is_there_gives_back_what_its_pods_took() -> None:
    raw = {**a_pod("web-1"), "spec": {**a_pod_spec("1"), "nodeName": "node-1"}}
    held = (Pod.from_object(raw),) * 2
    terms = Terms((a_balance(requests_cpu="3", used=amounts(requests_cpu="2")),))
    for replicas, verdict in ((2, Verdict.ADMITTED), (3, Verdict.ADMITTED), (4, Verdict.WAITS)):
        subject = replace(a_subject(a_workload(replicas=replicas), status={}), held=held)
        (result,) = check_namespace([subject], terms).results
        assert result.verdict is verdict


@pytest.mark.parametrize("hard", ["1", "500m"])
@pytest.mark.parametrize("at_bind", [False, True])
def test_a_pod_that_is_there_stays_though_its_quota_has_less(hard: str, at_bind: bool) -> None:
    raw = {**a_pod("a"), "spec": {**a_pod_spec("1"), "nodeName": "node-1"}}
    balance = a_balance(requests_cpu=hard, used=amounts(requests_cpu="2"))
    terms = Terms((replace(balance, at_bind=at_bind),))
    there = replace(a_subject(raw, status={}), held=(Pod.from_object(raw),))
    result, other = check_namespace([there, a_subject(a_pod("b"))], terms).results
    (issue,) = result.issues
    assert result.verdict is issue.verdict is Verdict.ADMITTED
    late = "wait" if at_bind else "be refused"
    assert issue.text.startswith(
        f"the pod is there already and stays; a new one would {late}: exceeded quota: team,"
    )
    assert other.issues[0].shortages[0].used == Quantity.parse("2")
    assert other.verdict is not Verdict.ADMITTED


HELD: Final = Pod.from_object({**a_pod("web-1"), "spec": {**a_pod_spec("1"), "nodeName": "node-1"}})


@pytest.mark.parametrize("at_bind", [False, True])
def test_pods_of_a_workload_that_are_there_stay_though_the_quota_has_less(at_bind: bool) -> None:
    balance = a_balance(requests_cpu="2", used=amounts(requests_cpu="3"))
    terms = Terms((replace(balance, at_bind=at_bind),))

    def check(kind: str, replicas: int, rollout: Rollout) -> Result:
        raw = a_workload(kind, replicas=replicas)
        there = replace(a_subject(raw, rollout=rollout, status={}), held=(HELD,) * 3)
        result, other = check_namespace([there, a_subject(a_pod("b"))], terms).results
        assert other.verdict is not Verdict.ADMITTED
        return result

    result = check("StatefulSet", 3, Rollout.SURGE)
    (issue,) = result.issues
    late = "wait" if at_bind else "be refused"
    assert issue.text == (
        f"all 3 pods are there already and stay; a new one would {late}: exceeded quota: team,"
        " requested: requests.cpu=1, used: requests.cpu=2, limited: requests.cpu=2"
    )
    assert result.verdict is Verdict.ADMITTED
    stays, stuck_rollout = check("Deployment", 3, Rollout.SURGE).issues
    assert stays.text == issue.text
    assert "stands still: no room for 1 pod more" in stuck_rollout.text
    for rollout, replicas, count in ((Rollout.STEADY, 5, 2), (Rollout.RECREATE, 3, 1)):
        (issue,) = check("Deployment", replicas, rollout).issues
        assert issue.verdict is Verdict.WAITS
        assert issue.text.startswith(f"{count} of {replicas} pods ")


def test_the_former_pods_of_an_object_are_given_back_once() -> None:
    terms = Terms((a_balance(requests_cpu="4", used=amounts(requests_cpu="4")),))
    one = a_subject(a_workload(replicas=1), status={})
    both = replace(one, groups=one.groups * 2, held=(HELD,) * 2)
    results = check_namespace([both, a_subject(a_pod("b"))], terms).results
    assert verdicts(results) == ["admitted", "refused"]


def test_a_pod_that_is_to_grow_is_judged_by_what_is_left() -> None:
    raw = {**a_pod("a"), "spec": {**a_pod_spec("1"), "nodeName": "node-1"}}
    terms = Terms((a_balance(requests_cpu="1", used=amounts(requests_cpu="1")),))
    grown = replace(a_subject(a_pod("a", "2"), status={}), held=(Pod.from_object(raw),))
    assert verdicts(check_namespace([grown], terms).results) == ["never-fits"]


def test_scaling_down_frees_what_the_next_object_needs() -> None:
    raw = {**a_pod("web-1"), "spec": {**a_pod_spec("1"), "nodeName": "node-1"}}
    terms = Terms((a_balance(requests_cpu="2", used=amounts(requests_cpu="2")),))
    gone = replace(a_subject(a_workload(replicas=0), status={}), held=(Pod.from_object(raw),) * 2)
    results = check_namespace([gone, a_subject(a_pod("a"))], terms).results
    assert verdicts(results) == ["admitted", "admitted"]


def stuck(unavailable: object) -> Object:
    return a_workload(
        replicas=2, strategy={"rollingUpdate": {"maxSurge": 1, "maxUnavailable": unavailable}}
    )


def test_a_rollout_without_room_stands_still_or_is_slow() -> None:
    terms = Terms((a_balance(requests_cpu="2"),))
    (still,) = judged(terms, stuck(0), rollout=Rollout.SURGE)
    assert (still.verdict, rules(still)) == (Verdict.WAITS, [Rule.ROLLOUT])
    assert "stands still: no room for 1 pod more" in still.issues[0].text
    (slow,) = judged(terms, stuck(1), rollout=Rollout.SURGE)
    assert (slow.verdict, rules(slow)) == (Verdict.ADMITTED, [Rule.ROLLOUT])
    for rollout in (Rollout.STEADY, Rollout.RECREATE):
        assert judged(terms, stuck(0), rollout=rollout)[0].issues == ()


@pytest.mark.parametrize(("rollouts", "issues"), [(None, 2), (3, 2), (2, 2), (1, 0)])
def test_only_some_rollouts_are_under_way_at_the_same_time(
    rollouts: int | None, issues: int
) -> None:
    terms = Terms((a_balance(requests_cpu="7"),))
    objects = [
        a_workload(
            "Deployment",
            f"web-{index}",
            replicas=2,
            strategy={"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}},
        )
        for index in range(3)
    ]
    terms = Terms((a_balance(requests_cpu="7"),))
    results = judged(terms, *objects, rollout=Rollout.SURGE, rollouts=rollouts)
    assert sum(len(one.issues) for one in results) == issues


@given(
    hard=st.integers(0, 20),
    pods=st.lists(st.tuples(st.integers(1, 6), st.integers(1, 5)), max_size=6),
    at_bind=st.booleans(),
)
def test_no_more_is_admitted_than_the_quota_has(
    hard: int, pods: list[tuple[int, int]], at_bind: bool
) -> None:
    terms = Terms((a_balance(requests_cpu=str(hard), at_bind=at_bind),), is_deferred=at_bind)
    objects = [
        a_workload("Deployment", f"web-{index}", replicas=replicas, cpu=str(cpu))
        for index, (replicas, cpu) in enumerate(pods)
    ]
    results = judged(terms, *objects)
    taken = sum(
        replicas * cpu
        for result, (replicas, cpu) in zip(results, pods, strict=True)
        if result.verdict is Verdict.ADMITTED
    )
    assert taken <= hard
    for result in results:
        for issue in result.issues:
            assert all(one.missing > Quantity.parse("0") for one in issue.shortages)


@given(
    pods=st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4)), min_size=1, max_size=5),
    rollouts=st.integers(1, 5),
)
def test_a_quota_of_the_peak_has_room_for_every_rollout(
    pods: list[tuple[int, int]], rollouts: int
) -> None:
    objects = [
        a_workload(
            "Deployment",
            f"web-{index}",
            replicas=replicas,
            cpu=str(cpu),
            strategy={"rollingUpdate": {"maxSurge": replicas, "maxUnavailable": 0}},
        )
        for index, (replicas, cpu) in enumerate(pods)
    ]
    amount = sum(replicas * cpu for replicas, cpu in pods)
    largest = sorted((replicas * cpu for replicas, cpu in pods), reverse=True)
    peak = amount + sum(largest[:rollouts])
    for hard, is_enough in ((peak, True), (peak - 1, False)):
        terms = Terms((a_balance(requests_cpu=str(hard)),))
        results = judged(terms, *objects, rollout=Rollout.SURGE, rollouts=rollouts)
        assert all(not one.issues for one in results) is is_enough


def test_an_object_that_is_refused_is_not_asked_about_its_pods() -> None:
    hard = {"count/deployments.apps": Quantity.parse("0"), **amounts(requests_cpu="1")}
    terms = Terms((replace(a_balance(), hard=hard),))
    pods_fault = replace(
        a_subject(a_workload()), issues=(Issue(Rule.LIMIT_RANGE, Verdict.REFUSED, "x"),)
    )
    (result,) = check_namespace([pods_fault], terms).results
    assert rules(result) == [Rule.OBJECT_QUOTA]
    (result,) = check_namespace([pods_fault], Terms()).results
    assert rules(result) == [Rule.LIMIT_RANGE]


def test_a_pod_that_never_fits_holds_nothing() -> None:
    terms = Terms((a_balance(requests_cpu="2", at_bind=True),), is_deferred=True, is_strict=True)
    assert verdicts(judged(terms, a_pod("a", "3"), a_pod("b"))) == ["never-fits", "admitted"]


def test_the_words_have_what_is_used_now() -> None:
    terms = Terms((a_balance(requests_cpu="2"),))
    issue = judged(terms, a_pod("a"), a_pod("b", "3"))[1].issues[0]
    assert issue.text.startswith(
        'pods "b" is forbidden: exceeded quota: team, requested: requests.cpu=3,'
        " used: requests.cpu=1, limited: requests.cpu=2"
    )
