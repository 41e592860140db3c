from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import cast

import pytest

from tests.builders import a_device_claim, a_pod, a_quota, an_expression
from tests.operations.scenes import (
    NAMESPACE,
    QUICK,
    ApiServer,
    Crowd,
    Object,
    a_cluster,
    a_gated_pod,
    a_masked_quota,
    a_namespace,
    gates_of,
    labels_of,
    native_usage,
    status_of,
)
from tests.reactions import (
    Call,
    Proceed,
    Reaction,
    ReactiveClient,
    conflict,
    forbid,
    in_turn,
    preceded_by,
    unavailable,
)
from webhook.fakecluster.storage import FakeClient, FakeCluster
from webhook.kube.api import (
    NAMESPACES,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_QUOTAS,
    ForbiddenError,
    ListOptions,
)
from webhook.kube.kinds import Kind
from webhook.operations.disable import opt_out, opted_in_namespaces, preview
from webhook.operations.retry import RetryPolicy
from webhook.quota.amounts.quantity import Quantity
from webhook.state.well_known import MODE_LABEL, SCHEDULING_GATE, gate_removal

OTHER_GATE = "example.com/other"


def test_the_label_the_gates_and_the_mask_go() -> None:
    cluster = a_cluster(
        a_namespace(),
        a_masked_quota(hard={"requests.cpu": "4", "pods": "9"}),
        a_gated_pod("web-1"),
        a_gated_pod("web-2", OTHER_GATE, SCHEDULING_GATE),
        a_pod(name="web-3", uid="uid-web-3", node="node-1", requests={"cpu": "2"}),
    )
    api = FakeClient(cluster)
    said: list[str] = []
    done = opt_out(api, NAMESPACE, report=said.append, patience=QUICK)
    assert done.had_label
    assert done.exists
    assert (done.gates, done.restored, done.problems, done.over) == (2, ("p1",), (), ())
    assert MODE_LABEL not in labels_of(api)
    assert gates_of(api, "web-1") == []
    assert gates_of(api, "web-2") == [OTHER_GATE]
    assert status_of(api) == {
        "hard": {"requests.cpu": "4", "pods": "9"},
        "used": {"requests.cpu": "4", "pods": "3"},
    }
    assert said == [
        "team-a: the label deferredquota.io/mode is removed",
        "team-a: 2 scheduling gates removed",
        "team-a: completing the status of its quotas",
    ]


def test_what_is_over_quota_now_is_reported_and_stays() -> None:
    cluster = a_cluster(
        a_namespace(), a_masked_quota(hard={"requests.cpu": "1"}), a_gated_pod("web-1", cpu="3")
    )
    api = FakeClient(cluster)
    done = opt_out(api, NAMESPACE, patience=QUICK)
    (over,) = done.over
    assert (over.quota, str(over.used["requests.cpu"]), str(over.hard["requests.cpu"])) == (
        "p1",
        "3",
        "1",
    )
    assert api.get(PODS, "web-1", namespace=NAMESPACE)


GPU = "requests.example.com/gpu"


def gpus_and_claims() -> FakeCluster:
    """A quota in which GPUs are hidden, and one of which they never were."""
    hidden = a_masked_quota(hard={GPU: "4", "pods": "9"})
    hidden["status"] = {"hard": {"pods": "9"}, "used": {"pods": "0"}}
    shown = a_masked_quota("shown", hard={GPU: "4"})
    claims = [a_device_claim(name=f"c{number}") for number in range(2)]
    return a_cluster(a_namespace(), hidden, shown, *claims)


def test_devices_of_claims_are_used_where_they_were_hidden() -> None:
    cluster = gpus_and_claims()
    api = FakeClient(cluster)
    done = opt_out(api, NAMESPACE, patience=QUICK)
    assert (done.restored, done.problems) == (("p1",), ())
    assert status_of(api) == {"hard": {GPU: "4", "pods": "9"}, "used": {GPU: "2", "pods": "0"}}
    assert status_of(api, "shown")["used"] == {GPU: "0"}


def test_a_claim_that_came_with_the_write_is_found_at_the_next_look() -> None:
    def come(_call: Call) -> None:
        cluster.load([(RESOURCE_CLAIMS, a_device_claim(name="late"))])

    cluster = gpus_and_claims()
    client = ReactiveClient(cluster)
    client.on("patch", RESOURCE_QUOTAS, preceded_by(come), times=1)
    assert opt_out(client, NAMESPACE, patience=QUICK).problems == ()
    assert cast("Object", status_of(FakeClient(cluster))["used"])[GPU] == "3"


def test_claims_that_may_not_be_listed_use_up_what_was_hidden() -> None:
    client = ReactiveClient(gpus_and_claims())
    client.on("list", RESOURCE_CLAIMS, forbid)
    done = opt_out(client, NAMESPACE, patience=QUICK)
    assert (done.restored, done.problems) == (("p1",), ())
    assert cast("Object", status_of(client)["used"]) == {GPU: "4", "pods": "0"}


def test_a_second_time_nothing_is_left_to_do() -> None:
    cluster = a_cluster(a_namespace(), a_masked_quota(hard={"cpu": "1"}), a_gated_pod("web-1"))
    api = FakeClient(cluster)
    opt_out(api, NAMESPACE, patience=QUICK)
    before = cluster.resource_version
    again = opt_out(api, NAMESPACE, patience=QUICK)
    assert (again.had_label, again.gates, again.restored, again.problems) == (False, 0, (), ())
    assert cluster.resource_version == before


def test_a_namespace_that_is_gone_needs_nothing() -> None:
    done = opt_out(FakeClient(a_cluster()), "nowhere", patience=QUICK)
    assert not done.exists
    assert done.problems == ()


def test_other_namespaces_are_left_alone() -> None:
    cluster = a_cluster(a_namespace(), a_namespace("team-b"), a_gated_pod("b", namespace="team-b"))
    api = FakeClient(cluster)
    opt_out(api, NAMESPACE, patience=QUICK)
    assert gates_of(api, "b", "team-b") == [SCHEDULING_GATE]
    assert MODE_LABEL in labels_of(api, "team-b")


def test_the_preview_writes_nothing() -> None:
    cluster = a_cluster(
        a_namespace(), a_masked_quota(hard={"requests.cpu": "0"}), a_gated_pod("web-1")
    )
    before = cluster.resource_version
    would = preview(FakeClient(cluster), NAMESPACE)
    assert (would.had_label, would.gates, would.restored) == (True, 1, ("p1",))
    assert [over.quota for over in would.over] == ["p1"]
    assert cluster.resource_version == before
    assert not preview(FakeClient(cluster), "nowhere").exists


def patched_kinds(api: ReactiveClient) -> list[Kind]:
    """Return the kinds of what was patched, in order."""
    return [call.kind for call in api.calls_of("patch")]


def replacing(cluster: FakeCluster, pod: Object) -> Reaction:
    """Replace a pod by another one of the same name before the call arrives."""

    def replace(call: Call) -> None:
        FakeClient(cluster).delete(PODS, call.name, namespace=NAMESPACE)
        cast("Object", pod["metadata"])["uid"] = "uid-another"
        cluster.load([(PODS, pod)])

    return preceded_by(replace)


def test_the_label_goes_before_any_gate() -> None:
    cluster = a_cluster(a_namespace(), a_masked_quota(hard={"cpu": "1"}), a_gated_pod("web"))
    api = ReactiveClient(cluster)
    opt_out(api, NAMESPACE, patience=QUICK)
    assert patched_kinds(api) == [NAMESPACES, PODS, RESOURCE_QUOTAS]


def test_a_gate_is_never_taken_from_another_pod_of_the_same_name() -> None:
    """The list shows a pod that is replaced before its patch arrives."""
    cluster = a_cluster(a_namespace(), a_gated_pod("web-1", SCHEDULING_GATE, OTHER_GATE))
    api = ReactiveClient(cluster)
    replace = replacing(cluster, a_gated_pod("web-1", OTHER_GATE, SCHEDULING_GATE))
    api.on("patch", PODS, replace, times=1)
    done = opt_out(api, NAMESPACE, patience=QUICK)
    assert done.gates == 1
    assert gates_of(api, "web-1") == [OTHER_GATE]


def test_errors_that_pass_are_repeated() -> None:
    cluster = a_cluster(a_namespace(), a_masked_quota(hard={"cpu": "1"}), a_gated_pod("web-1"))
    api = ReactiveClient(cluster)
    api.on("*", "*", in_turn([unavailable, None] * 100))
    done = opt_out(api, NAMESPACE, patience=QUICK)
    assert (done.problems, gates_of(FakeClient(cluster), "web-1")) == ((), [])


def test_a_gate_that_may_not_be_removed_is_named_and_the_rest_is_done() -> None:
    cluster = a_cluster(a_namespace(), a_masked_quota(hard={"cpu": "1"}), a_gated_pod("web-1"))
    api = ReactiveClient(cluster)
    api.on("patch", PODS, forbid)
    done = opt_out(api, NAMESPACE, patience=QUICK)
    assert done.problems == (
        'pod team-a/web-1 keeps its scheduling gate: pods "web-1" is forbidden: no right to patch',
    )
    assert done.restored == ("p1",)


def test_without_the_right_to_remove_gates_a_namespace_can_be_opted_out() -> None:
    """Gates are guarded while the API server knows the label, which is some time after it went."""
    api = ReactiveClient(a_cluster(a_namespace(), a_gated_pod("web-1")))

    def guard(call: Call, proceed: Proceed) -> object:
        if MODE_LABEL in labels_of(api) or len(api.calls_of("patch", PODS)) <= 3:
            forbid(call, proceed)
        return proceed()

    api.on("patch", PODS, guard)
    done = opt_out(api, NAMESPACE, patience=QUICK)
    assert (done.problems, done.gates, gates_of(api, "web-1")) == ((), 1, [])
    assert len(api.calls_of("patch", PODS)) == 4


def test_a_status_that_may_not_be_written_is_named() -> None:
    api = ReactiveClient(a_cluster(a_namespace(), a_masked_quota(hard={"cpu": "1"})))
    api.on("patch", RESOURCE_QUOTAS, forbid)
    done = opt_out(api, NAMESPACE, patience=QUICK)
    (problem,) = done.problems
    assert problem.startswith("quota p1: its status cannot be completed: resourcequotas")
    assert "within five minutes" in problem


def test_a_label_that_may_not_be_removed_is_an_error_and_nothing_is_done() -> None:
    cluster = a_cluster(a_namespace(), a_gated_pod("web-1"))
    api = ReactiveClient(cluster)
    api.on("patch", NAMESPACES, forbid)
    with pytest.raises(ForbiddenError):
        opt_out(api, NAMESPACE, patience=QUICK)
    assert gates_of(api, "web-1") == [SCHEDULING_GATE]


def test_a_user_without_any_right_learns_that_the_namespace_comes_first() -> None:
    api = ReactiveClient(a_cluster(a_namespace(), a_gated_pod("web-1")))
    api.on("*", "*", forbid)
    with pytest.raises(ForbiddenError, match=r'^namespaces "team-a" is forbidden'):
        opt_out(api, NAMESPACE, patience=QUICK)


def test_a_client_that_goes_on_masking_is_reported() -> None:
    cluster = a_cluster(a_namespace(), a_masked_quota(hard={"requests.cpu": "1"}))
    behind = ApiServer(cluster)  # it never hears that the label went
    api = FakeClient(cluster, admission=behind)
    brief = RetryPolicy(seconds=0.2, pause_seconds=0.001, settle_seconds=0.001)
    done = opt_out(api, NAMESPACE, patience=brief)
    assert done.problems == ("quota p1: status lacks requests.cpu: something takes it out again",)


def test_a_status_that_is_completed_when_the_time_is_up_is_blamed_on_no_other_client() -> None:
    api = FakeClient(a_cluster(a_namespace(), a_masked_quota()))
    done = opt_out(api, NAMESPACE, patience=RetryPolicy(seconds=0, settle_seconds=0))
    assert done.restored == ("p1",)
    (problem,) = done.problems
    assert problem == "quota p1: its status was completed, and not looked at again: the time was up"
    assert not opt_out(api, NAMESPACE, patience=QUICK).problems


def test_a_status_that_cannot_be_written_is_named_once() -> None:
    api = ReactiveClient(a_cluster(a_namespace(), a_masked_quota()))
    api.on("patch", RESOURCE_QUOTAS, unavailable)
    done = opt_out(api, NAMESPACE, patience=RetryPolicy(seconds=0, settle_seconds=0))
    (problem,) = done.problems
    assert "takes it out" not in problem


def test_a_status_that_others_write_all_the_time_is_blamed_on_no_client_that_masks() -> None:
    """The API server writes it whenever a pod is created: nothing was completed that could go."""
    api = ReactiveClient(a_cluster(a_namespace(), a_masked_quota()))
    api.on("patch", RESOURCE_QUOTAS, conflict)
    done = opt_out(api, NAMESPACE, patience=RetryPolicy(seconds=0, settle_seconds=0))
    assert done.problems == ("quota p1: pods come faster than they can be counted",)


def test_a_client_that_goes_on_masking_is_reported_once_and_soon() -> None:
    cluster = a_cluster(a_namespace(), a_masked_quota(hard={"requests.cpu": "1"}))
    api = FakeClient(cluster, admission=ApiServer(cluster))
    seconds = itertools.count()
    told: list[tuple[int, str]] = []
    patience = RetryPolicy(seconds=90, clock=lambda: float(next(seconds)), sleep=lambda _: None)

    def report(words: str) -> None:
        told.append((next(seconds), words))

    opt_out(api, NAMESPACE, report=report, patience=patience)
    (_, completing), (moment, masked) = told[-2:]
    assert [words for _, words in told].count(completing) == 1
    assert completing == "team-a: completing the status of its quotas"
    assert masked == "team-a: quota p1: status lacks requests.cpu: something takes it out again"
    assert 10 <= moment < 45


def test_a_quota_that_cannot_be_counted_is_named() -> None:
    odd = a_masked_quota(hard={"requests.cpu": "1"})
    cast("Object", odd["spec"])["scopeSelector"] = {
        "matchExpressions": [an_expression("PriorityClass", "In")]
    }
    pod = a_pod(requests={"cpu": "1"})
    done = opt_out(FakeClient(a_cluster(a_namespace(), odd, pod)), NAMESPACE, patience=QUICK)
    (problem,) = done.problems
    assert problem.startswith("quota p1 cannot be counted: ")


def test_usage_that_the_api_server_charged_already_is_not_lowered() -> None:
    quota = a_quota("p1", hard={"requests.cpu": "9", "pods": "9"}, used={"pods": "3"})
    cast("Object", quota["status"])["hard"] = {"pods": "9"}
    pod = a_pod(requests={"cpu": "1"})
    api = FakeClient(a_cluster(a_namespace(), quota, pod))
    opt_out(api, NAMESPACE, patience=QUICK)
    assert status_of(api)["used"] == {"pods": "3", "requests.cpu": "1"}


@pytest.mark.parametrize("hard", [{"requests.cpu": "1000"}, {"requests.cpu": "1000", "pods": "9k"}])
def test_under_load_no_gate_is_left_and_everything_is_counted(hard: dict[str, str]) -> None:
    """Pods come all the time while the API server's caches are a little behind."""
    cluster = a_cluster(
        a_namespace(), a_masked_quota(hard=hard), *(a_gated_pod(f"old-{n}") for n in range(40))
    )
    server = ApiServer(cluster)
    client = FakeClient(cluster, admission=server)
    created = itertools.count()

    def create(_: int) -> None:
        threading.Event().wait(0.002)
        name = f"new-{next(created)}"
        client.create(PODS, a_pod(name=name, uid="", requests={"cpu": "1"}))
        if created_enough.is_set():
            client.delete(PODS, name, namespace=NAMESPACE)

    created_enough = threading.Event()

    def lag(turn: int) -> None:
        threading.Event().wait(0.01)
        server.refresh()
        if turn > 20:
            created_enough.set()

    with Crowd(create, create, create, lag):
        done = opt_out(client, NAMESPACE, patience=QUICK)
    assert done.problems == ()
    assert done.gates >= 40
    server.refresh()
    api = FakeClient(cluster)
    pods = api.list(PODS, ListOptions(namespace=NAMESPACE)).items
    assert not [pod for pod in pods if cast("Object", pod["spec"]).get("schedulingGates")]
    used = cast("dict[str, str]", status_of(api)["used"])
    counted = native_usage(api)
    assert set(used) == set(hard)
    for key in hard:
        assert Quantity.parse(used[key]) >= Quantity.parse(str(counted[key])), key


def test_a_conflict_with_other_writers_is_decided_again() -> None:
    cluster = a_cluster(a_namespace(), a_masked_quota(hard={"requests.cpu": "5"}), a_pod())
    api = ReactiveClient(cluster)
    api.on("patch", RESOURCE_QUOTAS, conflict, times=3)
    done = opt_out(api, NAMESPACE, patience=QUICK)
    assert (done.restored, done.problems) == (("p1",), ())


def test_an_uninstallation_may_keep_the_label() -> None:
    cluster = a_cluster(a_namespace(), a_masked_quota(hard={"cpu": "1"}), a_gated_pod("web-1"))
    api = FakeClient(cluster)
    done = opt_out(api, NAMESPACE, patience=QUICK, keeps_label=True)
    assert (done.had_label, done.gates, done.restored, done.problems) == (True, 1, ("p1",), ())
    assert labels_of(api)[MODE_LABEL] == "deferred"


def test_gates_that_a_controller_removes_at_the_same_time_are_counted() -> None:
    """A controller that sees the label go removes gates, too."""
    cluster = a_cluster(a_namespace(), a_gated_pod("web-1"), a_gated_pod("web-2"))
    api = ReactiveClient(cluster)

    def remove_one(_call: Call, proceed: Proceed) -> object:
        done = proceed()
        FakeClient(cluster).patch(PODS, "web-1", gate_removal("uid-web-1", 0), namespace=NAMESPACE)
        return done

    api.on("patch", NAMESPACES, remove_one)
    done = opt_out(api, NAMESPACE, patience=QUICK)
    assert (done.gates, len(api.calls_of("patch", PODS))) == (2, 1)


def test_every_namespace_with_the_label_is_found() -> None:
    cluster = a_cluster(a_namespace(), a_namespace("b", mode="x"), a_namespace("c", mode=""))
    assert opted_in_namespaces(FakeClient(cluster)) == ("b", NAMESPACE)


def test_a_pod_that_cannot_be_read_is_named() -> None:
    cluster = a_cluster(a_namespace(), a_masked_quota(hard={"cpu": "1"}))
    odd = a_pod(name="odd")
    cast("Object", odd["spec"])["containers"] = "none"
    cluster.load([(PODS, odd)])
    done = opt_out(FakeClient(cluster), NAMESPACE, patience=QUICK)
    (problem,) = done.problems
    assert problem.startswith("Pod team-a/odd: spec.containers: must be a list")


def during_pauses(*events: Callable[[], object]) -> RetryPolicy:
    """RetryPolicy that lets something happen at each pause, one after the other."""
    left = list(events)

    def sleep(_: float) -> None:
        if left:
            left.pop(0)()

    return RetryPolicy(seconds=20, pause_seconds=0.001, settle_seconds=0.001, sleep=sleep)


def test_a_pod_that_was_on_its_way_when_the_label_went_loses_its_gate_too() -> None:
    cluster = a_cluster(a_namespace(), a_masked_quota(hard={"cpu": "1"}), a_gated_pod("web-1"))
    late = a_gated_pod("late")
    patience = during_pauses(lambda: cluster.load([(PODS, late)]))
    api = FakeClient(cluster)
    done = opt_out(api, NAMESPACE, patience=patience)
    assert (done.gates, gates_of(api, "late")) == (2, [])


def test_a_pod_that_was_not_charged_when_the_status_came_is_charged_later() -> None:
    """The API server knew the old status for a moment longer."""
    cluster = a_cluster(a_namespace(), a_masked_quota(hard={"requests.cpu": "9"}))
    late = a_pod(name="late", requests={"cpu": "2"})
    patience = during_pauses(
        lambda: None,  # no gate is left
        lambda: None,  # the status is written
        lambda: cluster.load([(PODS, late)]),  # it was complete
    )
    api = FakeClient(cluster)
    opt_out(api, NAMESPACE, patience=patience)
    assert status_of(api)["used"] == {"requests.cpu": "2"}


def charging(cluster: FakeCluster) -> ReactiveClient:
    """Charge a new pod just before each write of a status that follows a list of pods."""
    api, other, pods = ReactiveClient(cluster), FakeClient(cluster), itertools.count()

    def charge(call: Call) -> None:
        lists = [one.number for one in api.calls_of("list", PODS)]
        writes = [one.number for one in api.calls_of("patch", RESOURCE_QUOTAS)]
        if not lists or any(write > lists[-1] for write in writes[:-1]):
            return
        other.create(PODS, a_pod(name=f"new-{next(pods)}", uid="", requests={"cpu": "1"}))
        used = Quantity.parse(str(cast("Object", status_of(other)["used"])["requests.cpu"]))
        patch = {"status": {"used": {"requests.cpu": str(used + Quantity.parse("1"))}}}
        other.patch(RESOURCE_QUOTAS, call.name, patch, namespace=NAMESPACE, subresource="status")

    api.on("patch", RESOURCE_QUOTAS, preceded_by(charge))
    return api


def test_pods_that_were_missed_are_added_however_many_come_meanwhile() -> None:
    hard = {"requests.cpu": "99"}
    cluster = a_cluster(
        a_namespace(),
        a_quota("p1", hard=hard, used={"requests.cpu": "1"}),
        *(a_pod(name=f"old-{n}", uid=f"uid-{n}", requests={"cpu": "1"}) for n in range(4)),
    )
    api = charging(cluster)
    brief = RetryPolicy(seconds=5, pause_seconds=0.001, settle_seconds=0.001)
    done = opt_out(api, NAMESPACE, patience=brief)
    assert done.problems == ()
    assert cast("Object", status_of(api)["used"]) == native_usage(api) == {"requests.cpu": "5"}


def test_a_pod_is_named_by_its_uid() -> None:
    """Another pod of the same name, with the same gate, is another pod: it is listed first."""
    cluster = a_cluster(a_namespace(), a_gated_pod("web-1"))
    api = ReactiveClient(cluster)
    api.on("patch", PODS, replacing(cluster, a_gated_pod("web-1")), times=1)
    assert opt_out(api, NAMESPACE, patience=QUICK).gates == 1
    assert patched_kinds(api) == [NAMESPACES, PODS, PODS]
