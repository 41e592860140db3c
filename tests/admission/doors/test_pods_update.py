"""Updates of pods: only a deadline that comes or goes moves a pod between quotas."""

from __future__ import annotations

from typing import cast

import pytest

from tests.admission.doors.conftest import OpenDesk
from tests.admission.doors.desk import NAMESPACE, Desk, Reply, a_review
from tests.builders import a_quota
from webhook.admission.review import Phase
from webhook.cluster.api import PODS
from webhook.encoding import encode_json

Object = dict[str, object]


@pytest.fixture
def scoped(open_desk: OpenDesk) -> Desk:
    """2 cpu for pods with a deadline, 4 for those without."""
    return open_desk(
        a_quota("short", uid="s", hard={"requests.cpu": "2"}, scopes=["Terminating"]),
        a_quota("long", uid="l", hard={"requests.cpu": "4"}, scopes=["NotTerminating"]),
    )


def a_stored(desk: Desk, cpu: str = "1", name: str = "web-1", **fields: object) -> Object:
    fields = {"node": "node-1", "requests": {"cpu": cpu}, **fields}
    pod = desk.pod(name=name, uid=f"uid-{name}", **fields)
    desk.settle()
    return pod


def with_deadline(pod: Object, seconds: object) -> Object:
    return {**pod, "spec": {**cast("Object", pod["spec"]), "activeDeadlineSeconds": seconds}}


def flip(desk: Desk, old: Object, seconds: object, *, dry_run: bool = False) -> Reply:
    return desk.change_pod(old, with_deadline(old, seconds), dry_run=dry_run)


def flip_in_fact(desk: Desk, old: Object, seconds: object) -> Reply:
    reply = flip(desk, old, seconds)
    if reply.allowed:
        desk.api.update(PODS, with_deadline(old, seconds))
    return reply


@pytest.mark.parametrize("seconds", [0, 60])
def test_a_deadline_moves_all_of_an_assigned_pod_into_its_quota(scoped: Desk, seconds: int) -> None:
    old = a_stored(scoped)
    reply = flip(scoped, old, seconds)
    assert (reply.allowed, reply.decision, reply.audit["quota"]) == (True, "reserved", "short")
    assert scoped.reserved("short") == {"requests.cpu": "1"}
    assert scoped.reservations()["web-1"]["door"] == "Update"


def test_a_deadline_that_its_quota_has_no_room_for_is_refused(scoped: Desk) -> None:
    a_stored(scoped, "1500m", "other", activeDeadlineSeconds=9)
    reply = flip(scoped, a_stored(scoped), 60)
    assert (reply.code, reply.reason) == (403, "Forbidden")
    assert reply.message == (
        "exceeded quota: short, requested: requests.cpu=1, used: requests.cpu=1500m,"
        " limited: requests.cpu=2"
    )
    assert (reply.details["name"], reply.details["kind"]) == ("web-1", "pods")
    assert scoped.reservations() == {}


def test_a_deadline_that_goes_moves_the_pod_back(scoped: Desk) -> None:
    old = a_stored(scoped, "2", activeDeadlineSeconds=60)
    assert flip_in_fact(scoped, old, None).allowed
    scoped.settle()
    assert scoped.used("short") == {"requests.cpu": "0"}
    assert scoped.used("long") == {"requests.cpu": "2"}
    assert scoped.reservations() == {}


def test_what_a_pod_leaves_is_given_back_only_once_that_is_seen(scoped: Desk) -> None:
    old = a_stored(scoped, "2", activeDeadlineSeconds=60)
    scoped.pod(name="next", uid="uid-next", requests={"cpu": "1"}, activeDeadlineSeconds=60)
    scoped.catch_up()
    assert flip(scoped, old, None).allowed
    assert scoped.bind("next", uid="uid-next").code == 403
    scoped.api.update(PODS, with_deadline(old, None))
    scoped.settle()
    assert scoped.bind("next", uid="uid-next").allowed


@pytest.mark.parametrize(
    ("before", "after"), [(None, -1), (60, 30), (0, 60), (None, None)], ids=str
)
def test_a_deadline_that_moves_the_pod_nowhere_is_not_charged(
    scoped: Desk, before: int | None, after: int | None
) -> None:
    old = a_stored(scoped, "2", activeDeadlineSeconds=before)
    version = scoped.ledger_version()
    reply = flip(scoped, old, after)
    assert (reply.allowed, reply.audit) == (True, {"decision": "not-charged"})
    assert scoped.ledger_version() == version


def test_an_unscoped_quota_does_not_charge_a_deadline(desk: Desk) -> None:
    assert flip(desk, a_stored(desk, "2"), 60).allowed
    assert desk.reserved() == {}
    assert desk.used() == {"requests.cpu": "2"}


def test_a_deadline_is_remembered_for_a_quota_that_comes_while_it_is_on_its_way(
    desk: Desk,
) -> None:
    assert flip(desk, a_stored(desk, "2"), 60).allowed
    desk.create(a_quota("short", scopes=["Terminating"]))
    desk.settle()
    assert desk.reserved("short") == {"requests.cpu": "2"}


def test_a_pod_that_waits_may_get_any_deadline_and_is_charged_at_its_bind(scoped: Desk) -> None:
    old = a_stored(scoped, "3", node="")
    assert flip_in_fact(scoped, old, 60).allowed
    assert scoped.reserved("short") == {}
    scoped.catch_up()
    reply = scoped.bind("web-1", uid="uid-web-1")
    assert str(reply.message).startswith("exceeded quota: short, requested: requests.cpu=3")


def test_a_bind_that_overtakes_a_deadline_is_charged_in_both_quotas(scoped: Desk) -> None:
    old = a_stored(scoped, "1", node="")
    assert flip(scoped, old, 60).allowed
    assert scoped.bind("web-1", uid="uid-web-1").allowed
    assert scoped.reserved("short") == {"requests.cpu": "1"}
    assert scoped.reserved("long") == {"requests.cpu": "1"}


@pytest.mark.parametrize("node", ["", "node-1"], ids=["waiting", "assigned"])
@pytest.mark.parametrize("cpu", ["2", "3"], ids=["fits", "does not"])
def test_a_dry_run_tells_the_truth_and_writes_nothing(scoped: Desk, cpu: str, node: str) -> None:
    old = a_stored(scoped, cpu, node=node)
    before = scoped.cluster.resource_version
    reply = flip(scoped, old, 60, dry_run=True)
    assert reply.allowed == (cpu == "2" or not node)
    assert scoped.cluster.resource_version == before


CHANGES: dict[str, Object] = {
    "labels": {"metadata": {"labels": {"a": "b"}}},
    "image": {"spec": {"containers": [{"name": "main", "image": "registry.example/app:2"}]}},
    "a gate that goes": {"spec": {"schedulingGates": []}},
    "status": {"status": {"phase": "Running"}},
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_other_changes_are_not_charged_whatever_the_ledger_says(
    open_desk: OpenDesk, change: Object
) -> None:
    desk = open_desk(a_quota("p1", hard={"requests.cpu": "0"}), with_tracker=False)
    old = desk.pod(node="node-1", requests={"cpu": "9"})
    new = {
        **old,
        **{
            part: {**cast("Object", old[part]), **cast("Object", fields)}
            for part, fields in change.items()
        },
    }
    assert desk.change_pod(old, new).decision == "not-charged"


def test_a_finished_pod_may_get_a_deadline(scoped: Desk) -> None:
    old = a_stored(scoped, "3", status={"phase": "Failed"})
    assert flip(scoped, old, 60).decision == "nothing-charged"


def test_an_excluded_quota_is_left_to_the_api_server(open_desk: OpenDesk) -> None:
    excluded = {"annotations": {"deferredquota.io/exclude": "true"}}
    desk = open_desk(a_quota("p1", scopes=["Terminating"], metadata=excluded))
    old = desk.pod(node="n", requests={"cpu": "9"})
    assert flip(desk, old, 60).decision == "nothing-charged"


def test_a_namespace_that_has_not_opted_in_is_not_touched(open_desk: OpenDesk) -> None:
    desk = open_desk(a_quota("p1", scopes=["Terminating"]), mode="")
    assert flip(desk, desk.pod(node="n", requests={"cpu": "9"}), 60).decision == "not-opted-in"


def test_an_exempt_namespace_is_not_touched(open_desk: OpenDesk) -> None:
    desk = open_desk(
        a_quota("p1", scopes=["Terminating"]), settings={"exemptNamespaces": [NAMESPACE]}
    )
    assert flip(desk, desk.pod(node="n", requests={"cpu": "9"}), 60).decision == "exempt"


def test_without_a_ledger_a_deadline_is_undecided(open_desk: OpenDesk) -> None:
    desk = open_desk(a_quota("p1", scopes=["Terminating"]), with_tracker=False)
    reply = flip(desk, desk.pod(node="n", requests={"cpu": "1"}), 60)
    assert (reply.code, reply.message) == (
        429,
        "the quota ledger of this namespace is not there yet",
    )


def test_a_quota_that_cannot_be_read_holds_deadlines_up_and_is_named(desk: Desk) -> None:
    old = a_stored(desk)
    desk.create(a_quota("broken", hard={"requests.cpu": "many"}))
    desk.catch_up()
    reply = flip(desk, old, 60)
    assert reply.code == 429
    assert str(reply.message).startswith("quota broken cannot be read: ")


FRACTION = "a number with a fraction or an exponent"
DEADLINE = "spec.activeDeadlineSeconds"
WRONG = {
    "text": ("object", '"60"', DEADLINE, "a string"),
    "a fraction": ("object", "1.5", DEADLINE, FRACTION),
    "an exponent": ("object", "6e1", DEADLINE, FRACTION),
    "text before": ("oldObject", '"60"', f"oldObject.{DEADLINE}", "a string"),
}


@pytest.mark.parametrize(("where", "text", "field", "found"), WRONG.values(), ids=WRONG.keys())
def test_a_deadline_of_the_wrong_type_is_refused_with_its_path(
    desk: Desk, where: str, text: str, field: str, found: str
) -> None:
    old = a_stored(desk)
    review = a_review("UPDATE", "pods", old, old=old)
    cast("Object", review["request"])[where] = with_deadline(old, "DEADLINE")
    written = encode_json(review).replace(b'"DEADLINE"', text.encode())
    reply = desk.post_text(written, Phase.VALIDATING)
    assert (reply.code, reply.message) == (422, f"{field}: must be an integer, not {found}")


@pytest.mark.parametrize("absent", ["object", "oldObject"])
def test_a_review_without_one_of_its_objects_is_a_bad_request(desk: Desk, absent: str) -> None:
    old = a_stored(desk)
    review = a_review("UPDATE", "pods", old, old=old)
    cast("Object", review["request"])[absent] = None
    reply = desk.validate(review)
    assert (reply.code, reply.message) == (
        400,
        f"request.{absent}: must be present for UPDATE of pods",
    )
