"""Uninstalling: quotas hold all the time, pods are let go, nothing is left."""

from __future__ import annotations

import os
import signal
from typing import Any, cast

import pytest

from tests.builders import a_pod, a_quota
from tests.install.twin import Twin, run
from tests.operations.healthy import Pulse
from tests.reactions import ReactiveClient
from webhook.install.apply import kind_of_object
from webhook.install.kustomizations import read_directory
from webhook.install.rendering import API_PRIORITY, MANIFESTS
from webhook.install.uninstall import Removal, uninstall
from webhook.kube.api import (
    ALL,
    CLUSTER_DEFERRED_QUOTAS,
    COMPOSITE_ELASTIC_QUOTAS,
    ELASTIC_QUOTAS,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    PODS,
    QUOTA_LEDGERS,
    RESOURCE_QUOTAS,
    VALIDATING_WEBHOOKS,
    ClusterApi,
    ForbiddenError,
    Kind,
    ListOptions,
    NotFoundError,
    Object,
    Revision,
)
from webhook.kube.kinds import KNOWN_KINDS
from webhook.operations.retry import RetryPolicy, silent

QUICK = RetryPolicy(seconds=2, pause_seconds=0.01, settle_seconds=0.01)
GATE = {"name": "deferredquota.io/quota"}


@pytest.fixture
def twin() -> Twin:
    """A cluster with an installation, and a namespace where pods wait and run."""
    twin = Twin()
    run(twin, stamps=True)
    labels = {"deferredquota.io/mode": "deferred"}
    for name, labelled in (("team-a", True), ("left", False)):
        twin.api.create(
            NAMESPACES, {"metadata": {"name": name, "labels": labels if labelled else {}}}
        )
        twin.api.create(PODS, a_pod(name="gated", namespace=name, uid="", schedulingGates=[GATE]))
    quota = {key: value for key, value in a_quota("q").items() if key != "status"}
    twin.api.create(RESOURCE_QUOTAS, quota)
    twin.api.create(PODS, a_pod(name="runs", uid="", node="node-0", requests={"cpu": "5"}))
    twin.api.create(QUOTA_LEDGERS, {"metadata": {"name": "ledger", "namespace": "team-a"}})
    twin.written.clear()
    return twin


def remove(twin: Twin, **removal: Any) -> tuple[tuple[str, ...], list[str]]:
    lines: list[str] = []
    wanted = Removal(patience=QUICK, **removal)
    return uninstall(cast("ClusterApi", twin), wanted, lines.append), lines


def ours(twin: Twin) -> set[str]:
    found: set[str] = set()
    for kind in KNOWN_KINDS:
        for each in twin.api.list(kind).items:
            metadata: Any = each["metadata"]
            if "deferred-quota" in metadata["name"] or "deferredquota" in metadata["name"]:
                found.add(f"{kind.kind} {metadata['name']}")
    return found


def gates(twin: Twin, namespace: str) -> object:
    pod: Any = twin.api.get(PODS, "gated", namespace=namespace)
    return pod["spec"].get("schedulingGates")


def test_nothing_is_left(twin: Twin) -> None:
    problems, _ = remove(twin)
    assert problems == ()
    assert ours(twin) == set()


def test_the_priority_level_goes_too_where_there_is_one(twin: Twin) -> None:
    made = read_directory(MANIFESTS / API_PRIORITY)
    for each in made:
        twin.api.create(kind_of_object(each), each)
    _, lines = remove(twin)
    schema, level = "FlowSchema deferred-quota", "PriorityLevelConfiguration deferred-quota"
    assert lines.index(f"{schema}: deleted") < lines.index(f"{level}: deleted")
    for each in made:
        with pytest.raises(NotFoundError):
            twin.api.get(kind_of_object(each), "deferred-quota")


def test_pods_are_let_go_wherever_they_are(twin: Twin) -> None:
    remove(twin)
    assert not gates(twin, "team-a")
    assert not gates(twin, "left")


class Guarded(Twin):
    """Lets nobody take our gate off as long as that is registered."""

    def patch(self, kind: Kind, name: str, *args: Any, **kwargs: Any) -> Revision:
        if kind == PODS and "marks.deferredquota.io" in str(self.api.list(VALIDATING_WEBHOOKS)):
            raise ForbiddenError("spec.schedulingGates: may only be removed by somebody else")
        return super().patch(kind, name, *args, **kwargs)


def test_a_user_that_may_not_take_gates_off_may_uninstall(twin: Twin) -> None:
    guarded = Guarded()
    guarded.api = twin.api
    problems, lines = remove(guarded)
    assert problems == ()
    assert not gates(twin, "team-a")
    assert (
        "ValidatingWebhookConfiguration deferred-quota: is left without marks.deferredquota.io,"
        " shadow.deferredquota.io"
    ) in lines


def test_the_guards_of_the_bind_stay_while_gates_are_taken_off(twin: Twin) -> None:
    seen: list[list[str]] = []

    class Watched(Twin):
        def patch(self, kind: Kind, name: str, *args: Any, **kwargs: Any) -> Revision:
            if kind == PODS:
                (found,) = cast("Any", self.api.list(VALIDATING_WEBHOOKS).items)
                seen.append([each["name"].partition(".")[0] for each in found["webhooks"]])
            return super().patch(kind, name, *args, **kwargs)

    watched = Watched()
    watched.api = twin.api
    remove(watched)
    assert seen == [["bind", "assigned", "resize", "jobs", "quotas"]] * 2


def test_a_ca_that_is_written_meanwhile_stays_in_the_guards(twin: Twin) -> None:
    """The controller keeps the certificates until it is stopped."""
    rotated = "cm90YXRlZA=="

    class Rotating(Twin):
        is_rotated = False

        def patch(self, kind: Kind, name: str, *args: Any, **kwargs: Any) -> Revision:
            if kind == VALIDATING_WEBHOOKS and not self.is_rotated:
                self.is_rotated = True
                found: Any = self.api.get(kind, name)
                places = [f"/webhooks/{at}/clientConfig/caBundle" for at in range(3)]
                assert len(found["webhooks"]) >= len(places)
                made = [{"op": "add", "path": each, "value": rotated} for each in places]
                self.api.patch(kind, name, made)
            elif kind == PODS:
                (found,) = cast("Any", self.api.list(VALIDATING_WEBHOOKS).items)
                assert found["webhooks"][0]["clientConfig"]["caBundle"] == rotated
            return super().patch(kind, name, *args, **kwargs)

    rotating = Rotating()
    rotating.api = twin.api
    problems, _ = remove(rotating)
    assert (problems, rotating.is_rotated) == ((), True)


def test_quotas_are_complete(twin: Twin) -> None:
    remove(twin)
    quota: Any = twin.api.get(RESOURCE_QUOTAS, "q", namespace="team-a")
    assert quota["status"] == {"hard": {"requests.cpu": "2"}, "used": {"requests.cpu": "5"}}


def test_the_mask_goes_first_and_the_guards_after_quotas_hold(twin: Twin) -> None:
    remove(twin)
    order = twin.written
    completed = order.index("patch ResourceQuota q")
    for early in (
        "delete MutatingAdmissionPolicyBinding deferred-quota-mask",
        "delete MutatingWebhookConfiguration zz-deferred-quota-jobs",
        "delete MutatingAdmissionPolicyBinding deferred-quota-gate",
        "delete MutatingAdmissionPolicyBinding deferred-quota-gate-auto",
        "patch ValidatingWebhookConfiguration deferred-quota",
        "delete Deployment deferred-quota-system/deferred-quota-controller",
    ):
        assert order.index(early) < completed
    guards = order.index("delete ValidatingWebhookConfiguration deferred-quota")
    pinning = order.index("delete MutatingWebhookConfiguration deferred-quota")
    webhook = order.index("delete Deployment deferred-quota-system/deferred-quota-webhook")
    assert completed < guards < pinning < webhook
    assert order[-1] == "delete Namespace deferred-quota-system"


@pytest.mark.parametrize("removes_labels", [True, False])
@pytest.mark.parametrize("gating", ["deferredquota.io/gating", "deferredquota.io/pacing"])
@pytest.mark.parametrize("namespace", ["team-a", "other"])
def test_the_label_about_waiting_goes_too_wherever_it_is(
    twin: Twin, namespace: str, gating: str, removes_labels: bool
) -> None:
    if namespace == "other":
        raw: Any = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
        twin.api.create(NAMESPACES, raw)
    twin.api.patch(NAMESPACES, namespace, {"metadata": {"labels": {gating: "auto", "team": "a"}}})
    remove(twin, removes_labels=removes_labels)
    metadata: Any = twin.api.get(NAMESPACES, namespace)["metadata"]
    labels = metadata["labels"]
    assert (gating in labels) is not removes_labels
    assert labels["team"] == "a"


@pytest.mark.parametrize("removes_labels", [True, False])
def test_labels_go_only_when_asked(twin: Twin, removes_labels: bool) -> None:
    remove(twin, removes_labels=removes_labels)
    labels: Any = cast("Any", twin.api.get(NAMESPACES, "team-a"))["metadata"].get("labels") or {}
    assert ("deferredquota.io/mode" in labels) is not removes_labels


def test_ledgers_can_be_kept(twin: Twin) -> None:
    remove(twin, keeps_ledgers=True)
    assert ours(twin) == {
        "CustomResourceDefinition quotaledgers.deferredquota.io",
        "CustomResourceDefinition clusterdeferredquotas.deferredquota.io",
    }
    assert twin.api.get(QUOTA_LEDGERS, "ledger", namespace="team-a")


FATES = {
    (): "is not enforced from now on; it goes with its definition",
    ("keeps_ledgers",): "is not enforced from now on; it stays",
    ("dry_run",): "would not be enforced; it goes with its definition",
}


@pytest.mark.parametrize(("options", "fate"), FATES.items(), ids=FATES.values())
def test_cluster_quotas_are_named_before_the_guards_go(
    twin: Twin, options: tuple[str, ...], fate: str
) -> None:
    for name in ("two", "one"):
        twin.api.create(CLUSTER_DEFERRED_QUOTAS, {"metadata": {"name": name}})
    for kind in (ELASTIC_QUOTAS, COMPOSITE_ELASTIC_QUOTAS):
        twin.api.create(kind, {"metadata": {"name": "lent", "namespace": "team-a"}})
    problems, lines = remove(twin, **dict.fromkeys(options, True))
    assert problems == ()
    told = [line for line in lines if line.startswith(("ClusterDef", "Elastic", "Composite"))]
    names = ("ClusterDeferredQuota one", "ClusterDeferredQuota two", "ElasticQuota team-a/lent")
    assert told == [f"{name}: {fate}" for name in (*names, "CompositeElasticQuota team-a/lent")]
    gone = [each for each in lines if each.startswith("ValidatingWebhookConfiguration")]
    assert lines.index(told[-1]) < lines.index(gone[-1])


@pytest.mark.parametrize("options", [{}, {"removes_labels": True}, {"dry_run": True}])
def test_namespaces_that_keep_their_label_are_named(twin: Twin, options: dict[str, bool]) -> None:
    told = [line for line in remove(twin, **options)[1] if line.startswith("still labelled")]
    assert told == [] if options else told[0].startswith("still labelled: team-a; ")


def test_an_installation_from_before_cluster_quotas_can_be_removed(twin: Twin) -> None:
    class Older(Twin):
        def list(self, kind: Kind, options: ListOptions = ALL) -> Any:
            if kind == CLUSTER_DEFERRED_QUOTAS:
                raise NotFoundError("the server could not find the requested resource")
            return self.api.list(kind, options)

    older = Older()
    older.api = twin.api
    assert remove(older)[0] == ()
    assert ours(twin) == set()


def test_a_dry_run_changes_nothing(twin: Twin) -> None:
    before = ours(twin)
    problems, lines = remove(twin, dry_run=True)
    assert problems == ()
    assert twin.written == []
    assert ours(twin) == before
    assert {line.partition(":")[0] for line in lines if "would be deleted" in line} >= {
        "Namespace deferred-quota-system",
        "MutatingAdmissionPolicy deferred-quota-mask",
    }


def test_again_there_is_nothing_to_do(twin: Twin) -> None:
    remove(twin)
    twin.written.clear()
    problems, _ = remove(twin)
    assert problems == ()
    assert not any(line.startswith("delete") for line in twin.written)


def test_what_is_gone_already_is_no_obstacle(twin: Twin) -> None:
    for kind in KNOWN_KINDS:
        for each in twin.api.list(kind).items:
            metadata: Any = each["metadata"]
            if metadata["name"] == "deferred-quota-controller":
                twin.api.delete(kind, metadata["name"], namespace=metadata.get("namespace", ""))
    problems, _ = remove(twin)
    assert problems == ()
    assert ours(twin) == set()


def stubborn_controller(twin: Twin) -> None:
    labels = {
        "app.kubernetes.io/name": "deferred-quota",
        "app.kubernetes.io/component": "controller",
    }
    pod = a_pod(
        name="stubborn", namespace="deferred-quota-system", uid="", metadata={"labels": labels}
    )
    twin.api.create(PODS, pod)


def test_the_guards_stay_while_a_controller_runs_that_masks(twin: Twin) -> None:
    stubborn_controller(twin)
    problems, lines = remove(twin)
    assert problems[0] == "Pod stubborn: the controller still runs"
    assert "stopped here: the guards" in problems[1]
    assert "--force" in problems[1]
    assert not any("enforces" in line for line in lines)
    entries = cast("Any", twin.api.get(MUTATING_WEBHOOKS, "deferred-quota"))["webhooks"]
    assert [entry["name"] for entry in entries] == ["stamp.deferredquota.io"]
    assert twin.api.get(VALIDATING_WEBHOOKS, "deferred-quota")
    twin.api.delete(PODS, "stubborn", namespace="deferred-quota-system")
    assert remove(twin)[0] == ()
    assert ours(twin) == set()


def test_a_controller_that_is_ending_is_said_to_be(twin: Twin) -> None:
    stubborn_controller(twin)
    place: Any = {"namespace": "deferred-quota-system"}
    twin.api.patch(PODS, "stubborn", {"metadata": {"finalizers": ["example.com/wait"]}}, **place)
    twin.api.delete(PODS, "stubborn", **place)
    (ending, _), lines = remove(twin)
    assert "waiting until the pods of the controller have ended: stubborn" in lines
    assert ending == ("Pod stubborn: the controller is ending; run this again when the pod is gone")


def test_the_controller_stays_while_what_hides_quotas_does(twin: Twin) -> None:
    class Refusing(Twin):
        def delete(self, kind: Kind, name: str, **options: Any) -> Revision:
            if kind.kind == "MutatingAdmissionPolicyBinding":
                raise ForbiddenError("no right to delete bindings")
            return super().delete(kind, name, **options)

    refusing = Refusing()
    refusing.api = twin.api
    problems, _ = remove(refusing)
    bindings = ("mask", "gate-auto", "gate")
    assert problems[:-1] == tuple(
        f"MutatingAdmissionPolicyBinding deferred-quota-{one}: no right to delete bindings"
        for one in bindings
    )
    assert problems[-1].startswith("stopped here: the controller, the guards")
    assert "Deployment deferred-quota-controller" in ours(twin)
    assert gates(twin, "team-a") == [GATE]
    remove(refusing, is_forced=True)
    assert "Deployment deferred-quota-controller" not in ours(twin)


def test_the_guards_go_all_the_same_when_forced(twin: Twin) -> None:
    stubborn_controller(twin)
    problems, _ = remove(twin, is_forced=True)
    assert problems == ("Pod stubborn: the controller still runs",)
    with pytest.raises(NotFoundError):
        twin.api.get(VALIDATING_WEBHOOKS, "deferred-quota")
    with pytest.raises(NotFoundError):
        twin.api.get(NAMESPACES, "deferred-quota-system")


def test_a_quota_that_something_masks_keeps_the_guards(twin: Twin) -> None:
    patch = twin.patch

    def masking(kind: Any, name: str, change: Any, **options: Any) -> Any:
        if options.get("subresource") == "status":
            change = {"status": {"hard": {"requests.cpu": None}}}
        return patch(kind, name, change, **options)

    twin.patch = masking  # type: ignore[method-assign]
    problems, lines = remove(twin)
    assert problems[0].startswith("team-a: quota q: status lacks requests.cpu")
    assert not any("enforces" in line for line in lines)
    assert twin.api.get(VALIDATING_WEBHOOKS, "deferred-quota")
    twin.patch = patch  # type: ignore[method-assign]
    problems, lines = remove(twin)
    assert problems == ()
    assert "team-a: the API server enforces its quotas by itself" in lines


class Slow(Twin):
    """A cluster whose namespaces go slowly, as pods in them end."""

    def __init__(self, api: ReactiveClient, looks: int) -> None:
        super().__init__()
        self.api = api
        self.looks = looks
        self.is_deleted = False

    def get(self, kind: Kind, name: str, **options: Any) -> Object:
        if kind == NAMESPACES and self.is_deleted and self.looks:
            self.looks -= 1
            content = {"type": "NamespaceContentRemaining", "status": "True", "message": "2 pods"}
            return {"metadata": {"name": name}, "status": {"conditions": [content]}}
        return self.api.get(kind, name, **options)

    def delete(self, kind: Kind, name: str, *, namespace: str = "", **kwargs: Any) -> Revision:
        self.is_deleted = self.is_deleted or kind == NAMESPACES
        return super().delete(kind, name, namespace=namespace, **kwargs)


OURS = "Namespace deferred-quota-system"


def test_what_is_waited_for_is_said(twin: Twin) -> None:
    pulse = Pulse()
    patience = RetryPolicy(seconds=100, pause_seconds=4, clock=pulse.clock, sleep=pulse.sleep)
    lines: list[str] = []
    slow = Slow(twin.api, looks=8)
    uninstall(cast("ClusterApi", slow), Removal(patience=patience), lines.append)
    told = [line for line in lines if line.startswith(OURS)]
    assert told == [
        f"{OURS}: deleted",
        f"{OURS}: waiting until it is gone (2 pods)",
        f"{OURS}: still there after 12 s (2 pods)",
        f"{OURS}: still there after 24 s (2 pods)",
        f"{OURS}: gone",
    ]


def test_what_does_not_go_in_time_is_reported_with_what_keeps_it(twin: Twin) -> None:
    problems, lines = remove(Slow(twin.api, looks=10_000))
    assert problems == (f"{OURS}: is deleted, but not gone yet (2 pods)",)
    assert f"{OURS}: gone" not in lines


def test_what_goes_at_once_is_not_waited_for(twin: Twin) -> None:
    _, lines = remove(twin)
    assert not any("waiting until it is gone" in line or line.endswith(": gone") for line in lines)


@pytest.mark.timeout(60)
def test_the_keyboard_stops_it_while_quotas_are_given_back_and_the_guards_stay(twin: Twin) -> None:
    class Interrupted(Twin):
        def patch(self, kind: Kind, name: str, *args: Any, **kwargs: Any) -> Revision:
            if kind == PODS:
                os.kill(os.getpid(), signal.SIGINT)
            return super().patch(kind, name, *args, **kwargs)

    interrupted = Interrupted()
    interrupted.api = twin.api
    patience = RetryPolicy(seconds=600, pause_seconds=600, settle_seconds=600)
    with pytest.raises(KeyboardInterrupt):
        uninstall(cast("ClusterApi", interrupted), Removal(patience=patience), silent)
    assert twin.api.get(VALIDATING_WEBHOOKS, "deferred-quota")
    assert remove(twin)[0] == ()
    assert ours(twin) == set()
