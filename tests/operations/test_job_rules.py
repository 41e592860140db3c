"""A resize that rules of the cluster refuse is refused before a pod ends for it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.builders import a_quota
from tests.operations.jobs import World, an_order, wanted
from tests.operations.scenes import NAMESPACE, load
from tests.reactions import Call, Proceed, ReactiveClient, forbid
from webhook.config import load_configuration
from webhook.fakecluster.storage import FakeClient
from webhook.kube.api import (
    NAMESPACES,
    RESOURCE_QUOTAS,
    ApiError,
    ForbiddenError,
    Kind,
    Revision,
    UnavailableError,
)
from webhook.operations.jobs.planning import Order, Plan, ResizeRefusedError, plan_resize
from webhook.operations.jobs.resizing import resize
from webhook.operations.jobs.rules import SELF_SUBJECT_REVIEWS, ClusterRules
from webhook.policy import compile_policy

HEAD = "apiVersion: deferredquota.io/v1alpha1\nkind: Configuration\n"
REQUESTS = "spec.template.spec.containers[0].resources.requests.cpu"
GROWING = {"cpu": "6"}


def rules(text: str) -> ClusterRules:
    found = compile_policy(load_configuration(f"{HEAD}jobs: [{text}]", "config.yaml"))
    return ClusterRules(found.jobs, found.exempt_namespaces)


def order(text: str, requests: Mapping[str, str] | None = None, *, stays: bool = False) -> Order:
    amounts = {"main": wanted(requests or {"cpu": "2"})}
    return Order(NAMESPACE, "train", amounts, stays, rules(text))


def as_user(world: World, *hidden: Kind, review: ApiError | None = None) -> ReactiveClient:
    """Return a client of alice, without the right to read what is hidden."""

    def review_self(_call: Call, _proceed: Proceed) -> Revision:
        if review is not None:
            raise review
        data = b'{"status":{"userInfo":{"username":"alice","groups":["devs"]}}}'
        return Revision(key="", uid="", resource_version=0, data=data)

    world.api.on("create", SELF_SUBJECT_REVIEWS, review_self)
    for kind in hidden:
        world.api.on("get", kind, forbid)
        world.api.on("list", kind, forbid)
    return world.api


def refused(world: World, wish: Order) -> str:
    before = world.cluster.resource_version
    with pytest.raises(ResizeRefusedError) as caught:
        resize(as_user(world), wish, patience=world.patience())
    assert world.cluster.resource_version == before, "nothing is written"
    (problem,) = caught.value.problems
    return problem.removeprefix("job team-a/train: ")


REFUSED: Mapping[str, tuple[Order, str]] = {
    "growth": (
        order("{growth: {cpu: Deny}}", GROWING),
        f"{REQUESTS}: Forbidden: from 4 to 6: cpu of this Job may not grow",
    ),
    "growth of anything": (
        order("{growth: {'*': Deny}}", GROWING),
        f"{REQUESTS}: Forbidden: from 4 to 6: cpu of this Job may not grow",
    ),
    "shrinking": (
        order("{shrink: {cpu: Deny}}"),
        f"{REQUESTS}: Forbidden: from 4 to 2: cpu of this Job may not shrink",
    ),
    "a stranger": (
        order("{resizers: {users: [bob], groups: [admins]}}"),
        (
            f"{REQUESTS}: Forbidden: from 4 to 2: user 'alice' may not change the resources of this"
            " Job"
        ),
    ),
    "the first rule that is about it": (
        order("{selector: {matchLabels: {app: other}}}, {shrink: {cpu: Deny}}"),
        f"{REQUESTS}: Forbidden: from 4 to 2: cpu of this Job may not shrink",
    ),
    "a rule for its namespace": (
        order(
            "{namespaces: {matchLabels: {deferredquota.io/mode: deferred}}, shrink: {cpu: Deny}}"
        ),
        f"{REQUESTS}: Forbidden: from 4 to 2: cpu of this Job may not shrink",
    ),
}


@pytest.mark.parametrize(("wish", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_what_a_rule_refuses_costs_no_pod(wish: Order, words: str) -> None:
    assert refused(World(), wish) == words


def test_a_job_that_does_not_wait_for_old_pods_can_be_refused() -> None:
    world = World(podReplacementPolicy="TerminatingOrFailed")
    said = refused(world, order("{podReplacementPolicy: Deny}"))
    assert said.startswith("spec.podReplacementPolicy: must be Failed for a Job that ran")


def with_a_quota(cpu: str) -> World:
    """Three pods of 4 cpu run, and there is a quota."""
    world = World()
    load(world.cluster, a_quota("p1", hard={"requests.cpu": cpu}))
    return world


def test_growth_within_the_quota_is_refused_beyond_it() -> None:
    wish = order("{growth: {cpu: WithinQuota}}", GROWING)
    text = "3 pods ask requests.cpu=18, quota p1 limits requests.cpu=12; at most 2 fit"
    said = refused(with_a_quota("12"), wish)
    assert said == f"{REQUESTS}: Forbidden: from 4 to 6: may grow within the quota only: {text}"
    assert plan_resize(with_a_quota("18").api, wish).suspends


def test_a_job_whose_pods_do_not_fit_at_a_time_is_not_resumed_where_that_is_refused() -> None:
    wish = order("{unsuspend: Deny}")
    text = "3 pods ask requests.cpu=6, quota p1 limits requests.cpu=5; at most 2 fit"
    assert refused(with_a_quota("5"), wish) == f"spec.parallelism: {text}"
    assert plan_resize(with_a_quota("5").api, order("{}")).suspends
    assert plan_resize(with_a_quota("5").api, order("{unsuspend: Deny}", stays=True)).suspends


def test_a_job_that_stays_suspended_may_not_grow_beyond_a_quota() -> None:
    said = refused(with_a_quota("5"), order("", GROWING, stays=True))
    assert said.startswith("spec.template.spec: pods of this Job can never fit quota p1")
    world = with_a_quota("5")
    assert plan_resize(world.api, order("{neverFits: Warn}", GROWING, stays=True)).suspends


NOT_REFUSED: Mapping[str, Order] = {
    "no rules": order(""),
    "growth is": order("{growth: {cpu: Deny}}"),
    "others are": order("{selector: {matchLabels: {app: other}}, shrink: {'*': Deny}}"),
    "it is one of them": order("{resizers: {groups: [devs]}}"),
    "it is only warned of": order("{shrink: {'*': Warn}}"),
}


@pytest.mark.parametrize("wish", NOT_REFUSED.values(), ids=NOT_REFUSED.keys())
def test_what_no_rule_refuses_is_done(wish: Order) -> None:
    world = World()
    assert resize(as_user(world), wish, patience=world.patience()).resumed


@pytest.mark.parametrize("mode", [None, "shadow"])
def test_rules_are_for_namespaces_that_have_opted_in(mode: str | None) -> None:
    world = World()
    labels = {"metadata": {"labels": {"deferredquota.io/mode": mode}}}
    FakeClient(world.cluster).patch(NAMESPACES, NAMESPACE, labels)
    assert planned(world, order("{shrink: {'*': Deny}}")).unasked == ()


def planned(world: World, wish: Order, *hidden: Kind) -> Plan:
    return plan_resize(as_user(world, *hidden), wish)


def test_rules_are_not_for_exempt_namespaces() -> None:
    found = rules("{shrink: {'*': Deny}}")
    exempt = ClusterRules(found.jobs, frozenset({NAMESPACE}))
    wish = Order(NAMESPACE, "train", an_order().wanted, rules=exempt)
    assert planned(World(), wish).unasked == ()


def test_what_cannot_be_read_is_reported_and_stops_nothing() -> None:
    wish = order("{shrink: {'*': Deny}}")
    assert planned(World(), wish, NAMESPACES).unasked == (
        'rules of the cluster for Jobs: namespaces "team-a" is forbidden: no right to get',
    )
    assert planned(World(), order(""), RESOURCE_QUOTAS).unasked == (
        "whether its pods fit: resourcequotas is forbidden: no right to list",
    )
    unread = Order(NAMESPACE, "train", an_order().wanted, rules=ClusterRules(unread="rules: no"))
    assert planned(World(), unread).unasked == ("rules: no",)


def test_what_could_not_be_asked_about_the_user_is_named() -> None:
    api = as_user(World(), review=ForbiddenError("not you"))
    plan = plan_resize(api, order("{resizers: {users: [bob]}}"))
    assert plan.unasked == ("whether you may resize it: not you",)


def test_an_outage_is_not_taken_for_an_answer() -> None:
    api = as_user(World(), review=UnavailableError("later"))
    with pytest.raises(UnavailableError):
        plan_resize(api, order("{resizers: {users: [bob]}}"))


def test_where_old_pods_have_to_be_gone_it_waits_for_them() -> None:
    world, said = World(), list[str]()
    world.controls = False
    seen = {"conditions": [{"type": "Suspended", "status": "True"}]}
    world.events = [
        lambda: world.set_status(active=0, terminating=2, **seen),
        lambda: world.set_status(active=0, terminating=1, **seen),
        lambda: world.set_status(active=0, terminating=0, **seen),
    ]
    wish = order("{terminating: Deny}")
    done = resize(as_user(world), wish, report=said.append, patience=world.patience())
    assert done.resumed
    assert said == [
        "job team-a/train: suspended",
        "job team-a/train: waiting: status.terminating is 2",
        "job team-a/train: waiting: status.terminating is 1",
        "job team-a/train: changing its resources",
    ]
