"""Only the product, and people who may break the glass, write our marks on pods."""

from __future__ import annotations

from typing import Any, cast

import pytest

from tests.admission.handlers.conftest import OpenHarness
from tests.admission.handlers.harness import AdmissionHarness, Reply, a_review
from tests.builders import a_pod, a_quota
from webhook.state.well_known import (
    DEFAULT_NAMESPACE,
    GUARDED_ANNOTATION,
    SCHEDULING_GATE,
    UNEVALUATED,
    UNEVALUATED_LABEL,
    UNGATED_ANNOTATION,
    controller_user,
    webhook_user,
)

OURS, FOREIGN = {"name": SCHEDULING_GATE}, {"name": "example.com/hold"}
CAPACITY = "nos.nebuly.com/capacity"


def asked(
    harness: AdmissionHarness,
    old: Any,
    new: Any,
    *,
    user: str = "alice",
    groups: tuple[str, ...] = ("system:authenticated",),
) -> Reply:
    operation = "CREATE" if old is None else "UPDATE"
    review = a_review(operation, "pods", new, old=old, user=user)
    cast("Any", review["request"])["userInfo"]["groups"] = list(groups)
    return harness.validate(review)


def gated(*gates: dict[str, str], **fields: Any) -> Any:
    return a_pod(schedulingGates=list(gates), **fields)


def labelled(**labels: str) -> Any:
    return a_pod(metadata={"labels": labels})


def annotated(**annotations: str) -> Any:
    return a_pod(metadata={"annotations": annotations})


GUARDED = {GUARDED_ANNOTATION: "7"}
TOUCHED: dict[str, tuple[Any, Any, str]] = {
    "the gate is taken off": (gated(OURS), a_pod(), "spec.schedulingGates"),
    "only ours is": (gated(FOREIGN, OURS), gated(FOREIGN), "spec.schedulingGates"),
    "an annotation comes": (
        a_pod(),
        annotated(**GUARDED),
        "metadata.annotations[deferredquota.io/guarded]",
    ),
    "an annotation goes": (
        annotated(**GUARDED),
        a_pod(),
        "metadata.annotations[deferredquota.io/guarded]",
    ),
    "an annotation changes": (
        annotated(**GUARDED),
        annotated(**{GUARDED_ANNOTATION: "8"}),
        "metadata.annotations[deferredquota.io/guarded]",
    ),
    "a label comes": (
        a_pod(),
        labelled(**{"deferredquota.io/x": ""}),
        "metadata.labels[deferredquota.io/x]",
    ),
    "the label of an unjudged pod changes": (
        labelled(**{UNEVALUATED_LABEL: UNEVALUATED}),
        labelled(**{UNEVALUATED_LABEL: ""}),
        "metadata.labels[deferredquota.io/unevaluated]",
    ),
    "the mark of a pod that was let through changes": (
        annotated(**{UNGATED_ANNOTATION: "1a2b"}),
        annotated(**{UNGATED_ANNOTATION: "3c4d"}),
        "metadata.annotations[deferredquota.io/ungated]",
    ),
    "the mark of a pod that was let through comes": (
        a_pod(),
        annotated(**{UNGATED_ANNOTATION: "1a2b"}),
        "metadata.annotations[deferredquota.io/ungated]",
    ),
    "the capacity comes": (
        a_pod(),
        labelled(**{CAPACITY: "in-quota"}),
        "metadata.labels[nos.nebuly.com/capacity]",
    ),
    "the capacity changes": (
        labelled(**{CAPACITY: "over-quota"}),
        labelled(**{CAPACITY: "in-quota"}),
        "metadata.labels[nos.nebuly.com/capacity]",
    ),
}


@pytest.mark.parametrize(("old", "new", "field"), TOUCHED.values(), ids=TOUCHED)
def test_a_tenant_may_not_touch_our_marks(
    harness: AdmissionHarness, old: Any, new: Any, field: str
) -> None:
    reply = asked(harness, old, new)
    assert (reply.code, reply.reason, reply.decision) == (403, "Forbidden", "denied")
    ((reason, named, _),) = reply.causes
    assert (reason, named) == ("FieldValueForbidden", field)
    assert str(reply.message).startswith(f"{field}: ")


MARKED: dict[str, Any] = {
    "unjudged": labelled(**{UNEVALUATED_LABEL: UNEVALUATED, "app": "web"}),
    "let through": a_pod(
        metadata={"labels": {"app": "web"}, "annotations": {UNGATED_ANNOTATION: "1a2b"}}
    ),
    "of an elastic quota": labelled(**{CAPACITY: "over-quota", "app": "web"}),
}


@pytest.mark.parametrize("old", MARKED.values(), ids=MARKED)
def test_a_manifest_without_marks_that_nothing_is_decided_by_may_replace_a_pod(
    harness: AdmissionHarness, old: Any
) -> None:
    reply = asked(harness, old, labelled(app="web"))
    assert (reply.allowed, reply.decision) == (True, "not-charged")


def test_the_answer_says_which_users_may_take_the_gate_off_and_what_to_do(
    harness: AdmissionHarness,
) -> None:
    reply = asked(harness, gated(OURS), a_pod())
    assert reply.message == (
        "spec.schedulingGates: deferredquota.io/quota may only be removed by deferred-quota or the"
        " group system:masters; it goes by itself when quota is reserved for the pod: make room in"
        " the quota, or take the namespace out of deferred quota: deferred-quota disable team-a"
    )


def test_the_answer_says_which_users_may_write_a_mark(open_harness: OpenHarness) -> None:
    harness = open_harness(settings={"breakGlassGroups": ["sre", "admins"]})
    reply = asked(harness, a_pod(), annotated(**GUARDED))
    assert reply.message == (
        "metadata.annotations[deferredquota.io/guarded]: may only be added, changed or removed by"
        " deferred-quota or the group admins, sre: leave it as it is"
    )


def test_without_such_groups_no_other_user_may(open_harness: OpenHarness) -> None:
    harness = open_harness(settings={"breakGlassGroups": []})
    reply = asked(harness, a_pod(), annotated(**GUARDED), groups=("system:masters",))
    assert "removed by deferred-quota: leave it" in str(reply.message)


def test_many_marks_are_not_all_listed(harness: AdmissionHarness) -> None:
    many = {f"deferredquota.io/{number:02}": "x" for number in range(50)}
    reply = asked(harness, a_pod(), annotated(**many))
    assert str(reply.message).endswith("leave it as it is; and 45 more")
    assert len(reply.causes) == 5


OTHERS: dict[str, tuple[Any, Any]] = {
    "nothing changes": (gated(OURS), gated(OURS)),
    "another gate goes": (gated(FOREIGN, OURS), gated(OURS)),
    "gates change places": (gated(FOREIGN, OURS), gated(OURS, FOREIGN)),
    "the status": (a_pod(), a_pod(status={"phase": "Running"})),
    "other labels": (labelled(app="a"), labelled(app="b", **{"example.com/x": "y"})),
    "other annotations": (annotated(**GUARDED), annotated(**GUARDED, app="a")),
    "a name that only ends like ours": (a_pod(), labelled(**{"x.deferredquota.io/y": "z"})),
    "a name that begins nearly so": (a_pod(), labelled(**{"deferredquota.iox": "z"})),
    "no labels at all": (a_pod(metadata={"labels": None}), a_pod(metadata={"labels": {}})),
}


@pytest.mark.parametrize(("old", "new"), OTHERS.values(), ids=OTHERS)
def test_a_request_that_touches_none_is_not_hindered(
    harness: AdmissionHarness, old: Any, new: Any
) -> None:
    reply = asked(harness, old, new)
    assert (reply.allowed, reply.decision) == (True, "not-charged")


WHO = {
    "the controller": (controller_user(DEFAULT_NAMESPACE), (), True),
    "the webhook": (webhook_user(DEFAULT_NAMESPACE), (), True),
    "an administrator": ("root", ("system:masters",), True),
    "a user that the configuration names": ("quota-bot", (), True),
    "somebody": ("alice", ("devs", "system:authenticated"), False),
    "a kubelet": ("system:node:node-1", ("system:nodes",), False),
    "the account of another namespace": (
        "system:serviceaccount:team-a:deferred-quota-controller",
        (),
        False,
    ),
    "a group that is called like us": ("alice", (controller_user(DEFAULT_NAMESPACE),), False),
    "a user that is called like the group": ("system:masters", (), False),
}


@pytest.mark.parametrize(("user", "groups", "may"), WHO.values(), ids=WHO)
def test_some_may(open_harness: OpenHarness, user: str, groups: tuple[str, ...], may: bool) -> None:
    harness = open_harness(settings={"trustedUsers": ["quota-bot"]})
    for old, new, _ in TOUCHED.values():
        reply = asked(harness, old, new, user=user, groups=groups)
        assert (reply.allowed, reply.decision) == (may, "marked" if may else "denied")


def test_a_deadline_does_not_carry_a_mark_through(harness: AdmissionHarness) -> None:
    old = gated(OURS, metadata={"resourceVersion": "1"})
    new = a_pod(activeDeadlineSeconds=5, metadata={"resourceVersion": "1"})
    assert asked(harness, old, new).code == 403


def test_a_user_that_may_is_charged_for_a_deadline_all_the_same(open_harness: OpenHarness) -> None:
    harness = open_harness(a_quota("short", hard={"requests.cpu": "1"}, scopes=["Terminating"]))
    old = harness.pod(node="node-1", requests={"cpu": "2"})
    harness.wait_until_settled()
    new = {**old, "spec": {**cast("Any", old["spec"]), "activeDeadlineSeconds": 5}}
    new["metadata"] = {**cast("Any", old["metadata"]), "annotations": GUARDED}
    reply = asked(harness, old, new, user=controller_user(DEFAULT_NAMESPACE))
    assert str(reply.message).startswith("exceeded quota: short")


# -- pods that are created -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("metadata", "field"),
    [
        ({"annotations": GUARDED}, "metadata.annotations[deferredquota.io/guarded]"),
        ({"labels": {CAPACITY: "in-quota"}}, "metadata.labels[nos.nebuly.com/capacity]"),
    ],
    ids=["annotation", "label"],
)
def test_a_pod_with_a_node_may_not_look_guarded(
    harness: AdmissionHarness, metadata: Any, field: str
) -> None:
    pod = a_pod(node="node-1", requests={"cpu": "1"}, metadata=metadata)
    reply = asked(harness, None, pod)
    assert (reply.code, reply.reason) == (403, "Forbidden")
    assert reply.message == (
        f"{field}: may only be written by deferred-quota or the group system:masters:"
        " remove it from the manifest"
    )
    assert harness.reservations() == {}
    assert asked(harness, None, pod, groups=("system:masters",)).decision == "reserved"


def test_a_pod_without_a_node_is_not_refused_for_marks(harness: AdmissionHarness) -> None:
    """The mutating handler took them away; where it was not asked, the bind writes them anew."""
    reply = asked(harness, None, a_pod(metadata={"annotations": GUARDED}, requests={"cpu": "1"}))
    assert (reply.allowed, reply.decision) == (True, "not-assigned")


def test_a_kubelet_may_mirror_a_pod_with_whatever_its_file_says(harness: AdmissionHarness) -> None:
    annotations = {**GUARDED, "kubernetes.io/config.mirror": "abc"}
    pod = a_pod(node="node-1", requests={"cpu": "1"}, metadata={"annotations": annotations})
    assert asked(harness, None, pod, groups=("system:nodes",)).decision == "reserved"
    assert asked(harness, None, pod).code == 403


MIRROR = {"kubernetes.io/config.mirror": "abc"}
MIRROR_FIELD = "metadata.annotations[kubernetes.io/config.mirror]"


@pytest.mark.parametrize("mirrors", ["charge", "enforce"])
@pytest.mark.parametrize(
    ("groups", "decision"),
    [(("devs",), "denied"), (("system:nodes",), "reserved"), (("system:masters",), "reserved")],
    ids=["a user", "a kubelet", "an administrator"],
)
def test_a_mirror_pod_is_written_by_its_kubelet(
    open_harness: OpenHarness, mirrors: str, groups: tuple[str, ...], decision: str
) -> None:
    """Such a pod is never evicted for an owner that waits: users may not make one."""
    harness = open_harness(a_quota("p1"), settings={"mirrorPods": mirrors})
    pod = a_pod(node="node-1", requests={"cpu": "1"}, metadata={"annotations": MIRROR})
    reply = asked(harness, None, pod, groups=groups)
    assert reply.decision == decision
    if decision == "denied":
        assert (reply.code, reply.reason) == (403, "Forbidden")
        assert reply.message == (
            f"{MIRROR_FIELD}: may only be written by the group system:nodes:"
            " remove it from the manifest"
        )
        assert harness.reservations() == {}


# -- others who manage quota ---------------------------------------------------------------

KUEUE = "Kueue holds this pod for quota too ({}): it runs when both let it go"
NEIGHBOURS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "nobody": ({"schedulingGates": [FOREIGN]}, []),
    "a queue": (
        {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "main"}}},
        [KUEUE.format("kueue.x-k8s.io/queue-name")],
    ),
    "its gate": (
        {"schedulingGates": [OURS, {"name": "kueue.x-k8s.io/admission"}]},
        [KUEUE.format("kueue.x-k8s.io/admission")],
    ),
    "a queue and its gate": (
        {
            "metadata": {"labels": {"kueue.x-k8s.io/queue-name": "main"}},
            "schedulingGates": [{"name": "kueue.x-k8s.io/admission"}],
        },
        [KUEUE.format("kueue.x-k8s.io/queue-name")],
    ),
    "AAQ": (
        {"schedulingGates": [{"name": "ApplicationAwareQuotaGate"}]},
        ["AAQ" + KUEUE.format("ApplicationAwareQuotaGate").removeprefix("Kueue")],
    ),
}


@pytest.mark.parametrize(("fields", "warnings"), NEIGHBOURS.values(), ids=NEIGHBOURS)
def test_others_that_hold_the_pod_are_named(
    harness: AdmissionHarness, fields: dict[str, Any], warnings: list[str]
) -> None:
    reply = asked(harness, None, a_pod(requests={"cpu": "1"}, **fields))
    assert (reply.allowed, reply.warnings) == (True, warnings)
    assert all(len(warning) <= 120 for warning in warnings)


def test_a_pod_that_no_quota_concerns_has_one_manager_at_most(open_harness: OpenHarness) -> None:
    fields, _ = NEIGHBOURS["a queue"]
    assert asked(open_harness(), None, a_pod(**fields)).warnings == []
