"""A scheduler is told what the bind handler would say now, by the engine that says it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest
from flask.testing import FlaskClient

from tests.admission.extender.calls import (
    CANDIDATES,
    NODES,
    Object,
    ask,
    filter_call,
    filter_call_with_nodes,
    passed,
    preempt_call,
    preempt_call_with_pods,
    reason,
)
from tests.admission.handlers.harness import (
    AdmissionHarness,
    admission_harness,
    eventually,
    opt_in,
)
from tests.builders import a_quota, an_expression
from tests.reactions import unreachable
from webhook.admission.serving.app import create_app
from webhook.kube.api import NAMESPACES, PODS, QUOTA_LEDGERS, RESOURCE_QUOTAS, Kind
from webhook.state.well_known import SCHEDULING_GATE

OpenHarness = Callable[..., tuple[AdmissionHarness, FlaskClient]]
EVERYBODY = {"NodeNameToMetaVictims": CANDIDATES}
UNMATCHABLE = an_expression("PriorityClass", "In", "not a name")
NOBODY: Object = {"NodeNameToMetaVictims": {}}
TAKEN = (
    "quota exceeded: p1, requested: requests.cpu=1, used: requests.cpu=2, limited: requests.cpu=2"
)


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[OpenHarness]:
    """Opens a harness, as `admission_harness` does, with a client of the scheduler's paths."""
    with ExitStack() as stack:

        def opens(
            *objects: Mapping[str, object],
            settings: Mapping[str, object] | None = None,
            mode: str = "deferred",
            with_controller: bool = True,
        ) -> tuple[AdmissionHarness, FlaskClient]:
            harness = stack.enter_context(
                admission_harness(
                    *objects,
                    directory=tmp_path,
                    settings=settings,
                    mode=mode,
                    with_controller=with_controller,
                )
            )
            app = create_app(harness.engine.decide, serves_extender=lambda: True)
            return harness, stack.enter_context(app.test_client())

        yield opens


def a_pod_at(
    harness: AdmissionHarness, name: str = "web-1", cpu: str = "1", **fields: object
) -> Object:
    """A pod that waits, with a uid of its own."""
    return harness.pod(name=name, uid=f"uid-of-{name}", requests={"cpu": cpu}, **fields)


def filled(harness: AdmissionHarness) -> None:
    """Two of two cpu are taken."""
    a_pod_at(harness, "taken", "2", node="node-0")
    harness.wait_until_settled()


def test_a_pod_that_fits_keeps_all_nodes_and_all_candidates(opened: OpenHarness) -> None:
    harness, client = opened(a_quota("p1"))
    pod = a_pod_at(harness)
    harness.wait_until_settled()
    assert passed(ask(client, "filter", filter_call(pod))) == list(NODES)
    whole = filter_call_with_nodes(pod)
    assert ask(client, "filter", whole)["Nodes"] == whole["Nodes"]
    assert ask(client, "preempt", preempt_call(pod)) == EVERYBODY
    assert ask(client, "preempt", preempt_call_with_pods(pod)) == EVERYBODY


def test_a_pod_over_quota_has_no_node_and_evicts_no_pod(opened: OpenHarness) -> None:
    harness, client = opened(a_quota("p1"))
    filled(harness)
    pod = a_pod_at(harness)
    harness.wait_until_settled()
    assert reason(ask(client, "filter", filter_call(pod))) == TAKEN
    whole = ask(client, "filter", filter_call_with_nodes(pod))
    assert whole["FailedAndUnresolvableNodes"] == dict.fromkeys(NODES, TAKEN)
    assert ask(client, "preempt", preempt_call(pod)) == NOBODY
    assert ask(client, "preempt", preempt_call_with_pods(pod)) == NOBODY


def test_nothing_is_written_but_for_a_pod_that_may_evict(opened: OpenHarness) -> None:
    harness, client = opened(a_quota("p1"))
    fits, over = a_pod_at(harness, "fits"), a_pod_at(harness, "over", "3")
    harness.wait_until_settled()
    before = harness.version_at_rest()
    ask(client, "filter", filter_call(fits))
    for verb, call in (("filter", filter_call(over)), ("preempt", preempt_call(over))):
        ask(client, verb, call)
    assert harness.cluster.resource_version == before
    ask(client, "preempt", preempt_call(fits))
    assert harness.cluster.resource_version > before


def test_what_is_free_is_there_for_one_pod_that_may_evict(opened: OpenHarness) -> None:
    harness, client = opened(a_quota("p1"))
    pods = [a_pod_at(harness, f"web-{number}", "2") for number in range(3)]
    harness.wait_until_settled()
    found = [ask(client, "preempt", preempt_call(pod)) for pod in (*pods, pods[0])]
    assert found == [EVERYBODY, NOBODY, NOBODY, EVERYBODY]
    assert harness.bind("web-0", uid="uid-of-web-0").allowed


def test_what_a_released_pod_holds_stays_as_it_is(opened: OpenHarness) -> None:
    """It is kept for longer than what a bind takes."""
    harness, client = opened(a_quota("p1"))
    gates = [{"name": SCHEDULING_GATE}]
    pod = harness.pod(name="web", uid="uid-web", requests={"cpu": "2"}, schedulingGates=gates)
    call = preempt_call(pod)
    eventually(lambda: ask(client, "preempt", call) == EVERYBODY, "it is released")
    (held,) = harness.reservations().values()
    assert held["door"] == "Release"


def test_only_other_pods_reservations_count(opened: OpenHarness) -> None:
    harness, client = opened(a_quota("p1"))
    promised, other = a_pod_at(harness, "promised", "2"), a_pod_at(harness, "other")
    harness.wait_until_settled()
    assert harness.bind("promised", uid="uid-of-promised").allowed
    assert passed(ask(client, "filter", filter_call(promised))) == list(NODES)
    assert ask(client, "preempt", preempt_call(promised)) == EVERYBODY
    assert reason(ask(client, "filter", filter_call(other))) == TAKEN


def test_a_pod_passes_as_soon_as_quota_is_free(opened: OpenHarness) -> None:
    harness, client = opened(a_quota("p1"))
    filled(harness)
    pod = a_pod_at(harness)
    harness.wait_until_settled()
    assert reason(ask(client, "filter", filter_call(pod))) == TAKEN
    harness.finish("taken")
    harness.wait_until_settled()
    assert passed(ask(client, "filter", filter_call(pod))) == list(NODES)


def test_all_keys_that_are_exceeded_are_named(opened: OpenHarness) -> None:
    harness, client = opened(a_quota("p1", hard={"requests.cpu": "1", "limits.memory": "1Gi"}))
    amounts = {"requests": {"cpu": "2"}, "limits": {"memory": "2Gi"}}
    pod = harness.pod(name="web-1", uid="u", **amounts)
    harness.wait_until_settled()
    assert reason(ask(client, "filter", filter_call(pod))) == (
        "quota exceeded: p1, requested: limits.memory=2Gi,requests.cpu=2,"
        " used: limits.memory=0,requests.cpu=0, limited: limits.memory=1Gi,requests.cpu=1"
    )


def test_what_a_quota_wants_specified_is_said(opened: OpenHarness) -> None:
    harness, client = opened(a_quota("p1"), settings={"mustSpecify": "bind"})
    pod = harness.pod(name="web-1", uid="u")
    harness.wait_until_settled()
    text = "failed quota: p1: must specify requests.cpu for: main"
    assert reason(ask(client, "filter", filter_call(pod))) == text
    assert ask(client, "preempt", preempt_call(pod)) == NOBODY


def test_a_class_that_needs_a_quota_is_said(opened: OpenHarness) -> None:
    rule = {"scopeName": "PriorityClass", "operator": "In", "values": ["gold"]}
    harness, client = opened(a_quota("p1"), settings={"requireQuotaForPriority": [rule]})
    pod = a_pod_at(harness, priorityClassName="gold")
    harness.wait_until_settled()
    text = reason(ask(client, "filter", filter_call(pod)))
    assert text == "insufficient quota to match these scopes: [{PriorityClass In [gold]}]"


@pytest.mark.parametrize("mode", ["", "deferred"])
def test_namespaces_that_are_not_ours_are_left_alone(opened: OpenHarness, mode: str) -> None:
    exempt = {"exemptNamespaces": ["team-a"]} if mode else None
    harness, client = opened(a_quota("p1", hard={"requests.cpu": "0"}), settings=exempt, mode=mode)
    pod = a_pod_at(harness)
    harness.catch_up()
    assert passed(ask(client, "filter", filter_call(pod))) == list(NODES)
    assert ask(client, "preempt", preempt_call(pod)) == EVERYBODY


def test_a_namespace_that_has_just_opted_in_evicts_by_the_new_rules_at_once(
    opened: OpenHarness,
) -> None:
    harness, client = opened(a_quota("p1", hard={"requests.cpu": "0"}), mode="")
    pod = a_pod_at(harness)
    harness.catch_up()
    assert passed(ask(client, "filter", filter_call(pod))) == list(NODES)
    opt_in(harness.api, "team-a")
    harness.wait_until_settled()
    assert ask(client, "preempt", preempt_call(pod)) == NOBODY


BROKEN = {
    "the ledger cannot be read": QUOTA_LEDGERS,
    "the pod cannot be looked up": PODS,
    "the namespace cannot be looked up": NAMESPACES,
}


@pytest.mark.parametrize("kind", BROKEN.values(), ids=BROKEN.keys())
def test_what_cannot_be_decided_passes_and_evicts_no_pod(opened: OpenHarness, kind: Kind) -> None:
    harness, client = opened(a_quota("p1"))
    filled(harness)
    pod = a_pod_at(harness)
    harness.wait_until_settled()
    # of the one that is asked about, no cache knows anything
    metadata = {**pod["metadata"], "name": "unseen"} if kind == PODS else pod["metadata"]
    if kind == NAMESPACES:
        metadata = {**metadata, "namespace": "team-b"}
    pod = {**pod, "metadata": metadata}
    harness.client.on("get", kind, unreachable)
    assert passed(ask(client, "filter", filter_call(pod))) == list(NODES)
    assert ask(client, "preempt", preempt_call(pod)) == NOBODY


def test_before_anything_is_counted_pods_pass_and_evict_no_other(opened: OpenHarness) -> None:
    harness, client = opened(a_quota("p1"), with_controller=False)
    pod = a_pod_at(harness)
    harness.catch_up()
    assert passed(ask(client, "filter", filter_call(pod))) == list(NODES)
    assert ask(client, "preempt", preempt_call(pod)) == NOBODY


def test_with_a_quota_that_cannot_be_matched_a_pod_passes_and_evicts_no_other(
    opened: OpenHarness,
) -> None:
    harness, client = opened(a_quota("p1", expressions=[UNMATCHABLE]))
    pod = a_pod_at(harness)
    harness.catch_up()
    assert passed(ask(client, "filter", filter_call(pod))) == list(NODES)
    assert ask(client, "preempt", preempt_call(pod)) == NOBODY


def test_no_pod_is_evicted_for_one_that_cannot_be_bound_any_more(opened: OpenHarness) -> None:
    harness, client = opened(a_quota("p1"))
    pods = [
        a_pod_at(harness, "assigned", node="node-0"),
        a_pod_at(harness, "gated", schedulingGates=[{"name": "example.com/wait"}]),
        {"metadata": {"namespace": "team-a", "name": "gone", "uid": "u"}},
    ]
    successor = a_pod_at(harness, "successor")
    pods.append({"metadata": {**successor["metadata"], "uid": "uid-of-the-former"}})
    harness.wait_until_settled()
    for pod in pods:
        assert passed(ask(client, "filter", filter_call(pod))) == list(NODES)
        assert ask(client, "preempt", preempt_call(pod)) == NOBODY


def test_without_quota_in_the_namespace_everything_passes(opened: OpenHarness) -> None:
    harness, client = opened(a_quota("p1"))
    pod = a_pod_at(harness, cpu="9")
    harness.api.delete(RESOURCE_QUOTAS, "p1", namespace="team-a")
    harness.wait_until_settled()
    assert passed(ask(client, "filter", filter_call(pod))) == list(NODES)
    assert ask(client, "preempt", preempt_call(pod)) == EVERYBODY
