"""Elastic quotas in force: binds are charged by them, status and labels follow."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import cast

import pytest

from tests.admission.handlers.harness import (
    eventually,
    opt_in,
    opt_out,
)
from tests.builders import a_binding
from tests.controllers.elastic.objects import an_elastic_quota
from tests.controllers.elastic.world import LABEL, Object, World, opted_in, world
from tests.reactions import Call, Proceed, Reaction, for_name, preceded_by, unavailable
from webhook.jsonfields.reader import FieldReader
from webhook.kube.api import (
    CLUSTER_DEFERRED_QUOTAS,
    ELASTIC_QUOTAS,
    EVENTS,
    PODS,
    QUOTA_LEDGERS,
    ApiError,
    ForbiddenError,
    InvalidError,
    JsonPatch,
    UnavailableError,
)
from webhook.quota.queue.pod_conditions import observed_condition
from webhook.state.well_known import ELASTIC_LABEL

A_AND_B = (
    an_elastic_quota("team-a", {"cpu": 2}),
    an_elastic_quota("team-b", {"cpu": 2}, {"cpu": 3}),
)
POOL = {"epool_default": {"requests.cpu": "4"}, "eq_team-b_q": {"requests.cpu": "3"}}


def test_a_team_borrows_up_to_its_max_what_others_leave() -> None:
    with world(*A_AND_B) as here:
        here.wait_for(**POOL)
        assert [here.bind(f"b{number}", "team-b").allowed for number in range(3)] == [True] * 3
        refused = here.bind("b3", "team-b")
        assert refused.message == (
            "exceeded elastic quota: eq/q, requested: cpu=1, used: cpu=3, max: cpu=3"
        )
        assert here.bind("a0", "team-a").allowed
        refused = here.bind("a1", "team-a")
        assert refused.message == (
            "elastic pool default is used up, requested: cpu=1, used: cpu=4, size: cpu=4;"
            " borrowed: team-b cpu=1"
        )
        assert refused.causes == [
            ("QuotaExceeded", "cdq/epool.default/requests.cpu", "requested=1,used=4,limited=4")
        ]


def _shares(here: World, name: str, part: str) -> dict[str, str]:
    status = FieldReader(here.derived()[name]).child("status")
    found = {
        one.text("name"): one.child(part).text("requests.cpu")
        for one in status.children("namespaces")
    }
    return {namespace: amount for namespace, amount in found.items() if amount}


def test_binds_within_headroom_write_no_pool(tmp_path: Path) -> None:
    quotas = (
        an_elastic_quota("team-a", {"cpu": 9}),
        an_elastic_quota("team-b", {"cpu": 9}, {"cpu": 12}),
    )
    with world(*quotas, directory=tmp_path) as here:
        here.wait_for(
            epool_default={"requests.cpu": "18"}, **{"eq_team-b_q": {"requests.cpu": "12"}}
        )
        for namespace in ("team-a", "team-b"):
            assert here.bind("first", namespace).allowed
        assert _shares(here, "epool.default", "headroom") == {"team-a": "4", "team-b": "4"}
        assert _shares(here, "eq.team-b.q", "headroom") == {"team-b": "11"}
        before = _shares(here, "epool.default", "granted")
        for namespace in ("team-a", "team-b"):
            assert [here.bind(f"p{number}", namespace).allowed for number in range(4)] == [True] * 4
        assert _shares(here, "epool.default", "granted") == before
        for namespace in ("team-a", "team-b"):
            eventually(lambda n=namespace: here.status(n).get("used") == {"cpu": "5"}, "5 are used")  # type: ignore[misc]


def test_headroom_is_recalled_for_a_pod_that_lacks_it(tmp_path: Path) -> None:
    quotas = [an_elastic_quota(name, {"cpu": 4}) for name in ("team-a", "team-b")]
    with world(*quotas, directory=tmp_path) as here:
        here.wait_for(epool_default={"requests.cpu": "8"})
        assert here.bind("a", "team-a").allowed
        assert _shares(here, "epool.default", "headroom") == {"team-a": "1500m"}
        assert [here.bind(f"p{number}", "team-b").allowed for number in range(7)] == [True] * 7
        assert 429 in [reply.code for reply in here.replies]
        assert _shares(here, "epool.default", "headroom") == {}
        assert here.bind("p8", "team-b").code == 403


def test_a_gated_pod_does_not_wait_for_headroom(tmp_path: Path) -> None:
    quotas = [an_elastic_quota(name, {"cpu": 4}) for name in ("team-a", "team-b")]
    with world(*quotas, directory=tmp_path, is_gated=True) as here:
        here.wait_for(epool_default={"requests.cpu": "8"})
        assert here.bind("a", "team-a").allowed
        assert _shares(here, "epool.default", "headroom") == {"team-a": "1500m"}
        here.wait("big", "team-b", "7")
        here.says("big", "team-b", "Released")


def test_headroom_that_another_definition_drops_is_not_written_again_and_again(
    tmp_path: Path,
) -> None:
    with world(directory=tmp_path) as here:

        def drop(call: Call, proceed: Proceed) -> object:
            written = call.body if isinstance(call.body, list) else [{"value": call.body["spec"]}]
            for one in written:
                if isinstance(one["value"], dict):
                    one["value"].pop("headroom", None)
            return proceed()

        here.harness.client.on("create", CLUSTER_DEFERRED_QUOTAS, drop)
        here.harness.client.on("patch", CLUSTER_DEFERRED_QUOTAS, drop)
        for one in A_AND_B:
            here.harness.api.create(ELASTIC_QUOTAS, dict(one))
        here.wait_for(**POOL)
        assert "headroom" not in here.derived()["epool.default"]["spec"]  # type: ignore[operator]
        here.harness.client.calls.clear()
        assert here.bind("a", "team-a").allowed
        assert here.bind("b", "team-b").allowed
        eventually(lambda: here.status("team-b").get("used") == {"cpu": "1"}, "it is used")
        assert not [
            call
            for call in here.harness.client.calls
            if call.kind == CLUSTER_DEFERRED_QUOTAS and call.verb in ("create", "patch")
        ]


def test_what_is_not_lent_is_kept() -> None:
    # X21 of the rules, a tenth of it: a lends 1 of its 4, b has 1
    quotas = (
        an_elastic_quota("team-a", {"cpu": 4}, lendable={"cpu": 1}),
        an_elastic_quota("team-b", {"cpu": 1}),
    )
    with world(*quotas) as here:
        here.wait_for(epool_default={"requests.cpu": "5"})
        assert [here.bind(f"b{number}", "team-b").allowed for number in range(3)] == [
            True,
            True,
            False,
        ]
        assert [here.bind(f"a{number}", "team-a").allowed for number in range(4)] == [
            True,
            True,
            True,
            False,
        ]
        # a lends more from now on: nothing is counted again
        spec = {"spec": {"lendable": {"cpu": 3}}}
        here.harness.api.patch(ELASTIC_QUOTAS, "q", spec, namespace="team-a")
        here.end("a0", "team-a")
        eventually(
            lambda: here.harness.bind_in_fact("b2", namespace="team-b").allowed, "b borrows more"
        )


def test_the_status_says_what_is_used_and_borrowed() -> None:
    """nos: the status counts pods with phase Running, 0 here; its scheduler those with a node."""
    with world(*A_AND_B) as here:
        here.wait_for(**POOL)
        for number in range(3):
            here.bind(f"b{number}", "team-b")
        eventually(lambda: here.status("team-b").get("used") == {"cpu": "3"}, "3 are used")
        figures = {name: here.status("team-b")[name] for name in ("borrowed", "lent", "guaranteed")}
        assert figures == {
            "borrowed": {"cpu": "1"},
            "lent": {"cpu": "0"},
            "guaranteed": {"cpu": "1"},
        }
        assert here.status("team-b")["summary"] == "cpu 3/2"
        eventually(lambda: here.status("team-a").get("lent") == {"cpu": "1"}, "1 is lent")
        quota = {"quota": "ElasticQuota team-b/q", "resource": "cpu"}
        eventually(
            lambda: (
                [here.metric(f"elastic_{name}", **quota) for name in ("used", "min", "borrowed")]
                == [3, 2, 1]
            ),
            "the metrics say so",
        )


def _keep_used_only(call: Call, proceed: Proceed) -> object:
    """Store of a status what the definition of nos has."""
    for operation in call.body:
        if operation["path"] == "/status":
            status = operation["value"]
            operation["value"] = {name: status[name] for name in ("used",) if name in status}
    return proceed()


def test_an_amount_that_is_larger_than_any_float_stops_no_status() -> None:
    """Quantities know exponents that floats do not."""
    with world(*A_AND_B) as here:
        here.wait_for(**POOL)
        huge = an_elastic_quota("team-c", {"cpu": "9999999999e300"})
        here.harness.api.create(ELASTIC_QUOTAS, huge)
        assert here.bind("a", "team-a").allowed
        eventually(lambda: here.status().get("used") == {"cpu": "1"}, "the others have theirs")
        of_c = {"quota": "ElasticQuota team-c/q", "resource": "cpu"}
        eventually(lambda: here.metric("elastic_min", **of_c) == math.inf, "its min is shown")


def test_what_another_definition_drops_of_a_status_is_not_written_again_and_again() -> None:
    conflicting = an_elastic_quota("team-a", {"cpu": 1})
    conflicting["metadata"] = {"name": "second", "namespace": "team-a"}
    with world() as here:
        client = here.harness.client
        client.on("patch", ELASTIC_QUOTAS, _keep_used_only, subresource="status")
        for made in (*A_AND_B, conflicting):
            here.harness.create(made)
        here.wait_for(**POOL)
        here.bind("b0", "team-b")
        eventually(lambda: here.status("team-b").get("used") == {"cpu": "1"}, "1 is used")
        eventually(lambda: "second" in _events_of(here, "Conflict"), "the second is told")

        _look_again(here, "first")
        client.calls.clear()
        _look_again(here, "second")
        kinds = [call.kind for call in client.calls if call.subresource == "status"]
        assert ELASTIC_QUOTAS not in kinds


def _look_again(here: World, name: str) -> None:
    """Have all elastic quotas looked at, from beginning to end."""

    def looks() -> int:
        return sum(
            call.verb == "list" and call.kind == CLUSTER_DEFERRED_QUOTAS and not call.is_paged
            for call in here.harness.client.calls
        )

    for number in range(3):  # while a look begins, the one before it has ended
        before = looks()
        here.harness.create(opted_in(f"{name}-{number}", is_gated=False))
        eventually(lambda b=before: looks() > b, "it is looked again")  # type: ignore[misc]


def test_pods_over_their_min_are_labelled_and_the_labels_follow() -> None:
    """nos: labels running pods only, not at their creation; labels stay without a quota."""
    with world(*A_AND_B) as here:
        here.wait_for(**POOL)
        for number in range(3):
            here.bind(f"b{number}", "team-b")
        wanted = {"b0": "in-quota", "b1": "in-quota", "b2": "over-quota"}
        eventually(lambda: here.labels("team-b") == wanted, "the newest is over")
        here.harness.api.delete(PODS, "b0", namespace="team-b", grace_period_seconds=0)
        wanted = {"b1": "in-quota", "b2": "in-quota"}
        eventually(lambda: here.labels("team-b") == wanted, "none is over")
        forged = {"metadata": {"labels": {LABEL: "over-quota"}}}
        here.harness.api.patch(PODS, "b1", forged, namespace="team-b")
        eventually(lambda: here.labels("team-b") == wanted, "a label is compared, not believed")
        here.harness.api.delete(ELASTIC_QUOTAS, "q", namespace="team-b")
        eventually(lambda: here.labels("team-b") == {"b1": "", "b2": ""}, "there is no quota")
        # a cache that is behind may have one removed again
        eventually(
            lambda: (here.metric("elastic_labels_total", value="removed") or 0) >= 2, "both count"
        )
        used = {"quota": "ElasticQuota team-b/q", "resource": "cpu"}
        eventually(lambda: here.metric("elastic_used", **used) is None, "its metrics are gone")


def test_a_composite_is_one_quota_of_all_its_namespaces() -> None:
    whole = an_elastic_quota("team-c", {"cpu": 1}, {"cpu": 2}, namespaces=["team-a", "team-b"])
    with world(whole, an_elastic_quota("team-c", {"cpu": 5})) as here:
        here.wait_for(
            **{"epool_default": {"requests.cpu": "6"}, "ceq_team-c_q": {"requests.cpu": "2"}}
        )
        assert here.bind("one", "team-a").allowed
        assert here.bind("two", "team-b").allowed
        assert here.bind("three", "team-a").message == (
            "exceeded elastic quota: ceq/team-c/q, requested: cpu=1, used: cpu=2, max: cpu=2"
        )
        eventually(
            lambda: here.status("team-c", composite=True).get("used") == {"cpu": "2"},
            "both are used",
        )
        eventually(lambda: here.labels("team-b") == {"two": "over-quota"}, "the second is over")


def test_gpu_memory_is_shared_and_cpu_is_not_compared() -> None:
    quotas = (
        an_elastic_quota("team-a", {"nos.nebuly.com/gpu-memory": 42}),
        an_elastic_quota("team-b", {"nos.nebuly.com/gpu-memory": 32}),
    )
    with world(*quotas) as here:
        here.wait_for(epool_default={"nos.nebuly.com/gpu-memory": "74"})
        gpus = {"nvidia.com/gpu": "1", "nvidia.com/mig-1g.10gb": "1"}
        assert here.bind("one", "team-a", **gpus).allowed
        assert here.bind("cpu", "team-b", cpu="64").allowed
        refused = here.bind("two", "team-b", **gpus)
        assert refused.message == (
            "elastic pool default is used up, requested: nos.nebuly.com/gpu-memory=42,"
            " used: nos.nebuly.com/gpu-memory=42, size: nos.nebuly.com/gpu-memory=74"
        )
        assert here.bind("three", "team-b", **{"nvidia.com/gpu": "1"}).allowed


@pytest.mark.parametrize("is_gated", [False, True])
def test_what_a_pod_does_not_request_takes_nothing(*, is_gated: bool) -> None:
    """As in nos: its manifests work unchanged, those of the pods too."""
    both: Object = {"cpu": 1, "memory": "1Gi"}
    with world(an_elastic_quota("team-a", both, both), is_gated=is_gated) as here:
        hard = {"requests.cpu": "1", "requests.memory": "1Gi"}
        here.wait_for(**{"epool_default": hard, "eq_team-a_q": hard})
        if is_gated:
            here.wait("a0", "team-a")
            here.says("a0", "team-a", "Released")
            here.harness.catch_up()
            assert here.harness.bind_in_fact("a0", namespace="team-a").allowed
        else:
            assert here.bind("a0", "team-a").allowed
        assert not here.bind("a1", "team-a", cpu="1", memory="1Mi").allowed
        assert here.bind("a2", "team-a", memory="1Gi").allowed


def test_an_edit_of_min_changes_the_pool() -> None:
    with world(*A_AND_B) as here:
        here.wait_for(**POOL)
        patch = {"spec": {"min": {"cpu": 1}}}
        here.harness.api.patch(ELASTIC_QUOTAS, "q", patch, namespace="team-a")
        here.wait_for(**{**POOL, "epool_default": {"requests.cpu": "3"}})
        assert [here.bind(f"a{number}", "team-a").allowed for number in range(4)] == [
            *[True] * 3,
            False,
        ]


def test_a_namespace_that_opts_out_takes_its_min_with_it_and_comes_back() -> None:
    with world(*A_AND_B) as here:
        here.wait_for(**POOL)
        opt_out(here.harness.api, "team-b")
        here.wait_for(**{**POOL, "epool_default": {"requests.cpu": "2"}})
        eventually(lambda: here.condition("team-b") == "NotOptedIn", "the quota says so")
        opt_in(here.harness.api, "team-b")
        here.wait_for(**POOL)
        eventually(lambda: here.condition("team-b") == "AllCharged", "the quota says so")


def test_a_pool_ends_while_its_namespaces_go_on_to_bind() -> None:
    def written_afterwards(call: Call, proceed: Proceed) -> object:
        answer = proceed()
        if call.selection.label_selector:
            for name in here.derived():
                seen: JsonPatch = [{"op": "add", "path": "/status/seen", "value": call.number}]
                api.patch(CLUSTER_DEFERRED_QUOTAS, name, seen, subresource="status")
        return answer

    with world(*A_AND_B) as here:
        here.wait_for(**POOL)
        api = here.harness.api
        here.harness.client.on("list", CLUSTER_DEFERRED_QUOTAS, written_afterwards)
        for namespace in ("team-a", "team-b"):
            api.delete(ELASTIC_QUOTAS, "q", namespace=namespace)
        eventually(lambda: not here.derived(), "nothing is charged any more")


def test_what_is_no_longer_marked_as_derived_is_not_deleted() -> None:
    """Somebody took the object over just before."""
    with world(*A_AND_B) as here:
        here.wait_for(**POOL)
        api = here.harness.api

        def taken_over(_call: Call) -> None:
            gone = {"metadata": {"labels": {ELASTIC_LABEL: None}}}
            api.patch(CLUSTER_DEFERRED_QUOTAS, "epool.default", gone)

        of_pool = for_name("epool.default", preceded_by(taken_over))
        here.harness.client.on("get", CLUSTER_DEFERRED_QUOTAS, of_pool, times=1)
        for namespace in ("team-a", "team-b"):
            api.delete(ELASTIC_QUOTAS, "q", namespace=namespace)
        eventually(lambda: [*here.derived()] == ["epool.default"], "all others are gone")
        here.harness.catch_up()
        assert [*here.derived()] == ["epool.default"]


def test_what_a_person_changes_is_written_again() -> None:
    with world(*A_AND_B) as here:
        here.wait_for(**POOL)
        api = here.harness.api
        api.patch(
            CLUSTER_DEFERRED_QUOTAS, "epool.default", {"spec": {"hard": {"requests.cpu": 99}}}
        )
        here.wait_for(**POOL)
        api.delete(CLUSTER_DEFERRED_QUOTAS, "eq.team-b.q")
        here.wait_for(**POOL)
        edit = "elastic quotas are charged by it: edit these"
        wanted = {
            "epool.default": f"it was changed by another client; {edit}",
            "eq.team-b.q": f"it was deleted by another client; {edit}",
        }
        eventually(lambda: _events_of(here, "WrittenAgain") == wanted, "events say so")
        assert [here.bind(f"b{number}", "team-b").allowed for number in range(4)] == [
            *[True] * 3,
            False,
        ]


def test_a_condition_of_another_controller_stays() -> None:
    theirs = {
        "type": "example.com/Audited",
        "status": "True",
        "observedGeneration": 1,
        "reason": "Audited",
        "message": "m" * 3000,
    }
    with world(*A_AND_B) as here:
        eventually(lambda: here.condition() == "AllCharged", "the quota is charged")
        add: JsonPatch = [{"op": "add", "path": "/status/conditions/-", "value": theirs}]
        here.harness.api.patch(ELASTIC_QUOTAS, "q", add, namespace="team-a", subresource="status")
        assert here.bind("web", "team-a").allowed
        eventually(lambda: here.status().get("used") == {"cpu": "1"}, "the status is written")
        assert here.condition() == "AuditedAllCharged"
        assert theirs in cast("list[object]", here.status()["conditions"])


def test_a_condition_that_another_controller_writes_just_before_stays() -> None:
    def writes(path: str, value: object) -> Reaction:
        add: JsonPatch = [{"op": "add", "path": path, "value": value}]

        def audit(_call: Call) -> None:
            here.harness.api.patch(
                ELASTIC_QUOTAS, "q", add, namespace="team-a", subresource="status"
            )

        return preceded_by(audit)

    theirs = {"type": "example.com/Audited", "status": "True", "reason": "Audited"}
    with world(A_AND_B[1]) as here:
        eventually(lambda: here.condition("team-b") == "AllCharged", "the other is charged")
        first = writes("/status", {"conditions": [theirs]})
        here.harness.client.on("patch", ELASTIC_QUOTAS, first, times=1)
        here.harness.api.create(ELASTIC_QUOTAS, A_AND_B[0])
        eventually(lambda: here.status().get("used") == {"cpu": "0"}, "the status is written")
        assert here.condition() == "AuditedAllCharged"
        second = writes("/status/conditions/-", {**theirs, "type": "example.com/Seen"})
        here.harness.client.on("patch", ELASTIC_QUOTAS, second, times=1)
        assert here.bind("web", "team-a").allowed
        eventually(lambda: here.status().get("used") == {"cpu": "1"}, "the status is written")
        assert here.condition() == "AuditedAuditedAllCharged"


def test_a_status_that_is_refused_stops_no_other() -> None:
    def refuse(call: Call, proceed: Proceed) -> object:
        if call.namespace == "team-a" and call.subresource == "status":
            raise ForbiddenError("by a policy of others")
        return proceed()

    with world() as here:
        reactor = here.harness.client.on("patch", ELASTIC_QUOTAS, refuse)
        for made in A_AND_B:
            here.harness.create(made)
        here.wait_for(**POOL)
        assert here.bind("b", "team-b").allowed
        eventually(lambda: here.status("team-b").get("used") == {"cpu": "1"}, "it is used")
        assert here.condition("team-a") == ""
        reactor.remove()
        eventually(lambda: here.condition("team-a") == "AllCharged", "it is tried again")


def test_quotas_that_are_switched_off_say_so(tmp_path: Path) -> None:
    def switch(*, is_on: bool) -> None:
        document = {
            "apiVersion": "deferredquota.io/v1alpha1",
            "kind": "Configuration",
            "elastic": {"enabled": is_on},
        }
        (tmp_path / "configuration.yaml").write_text(json.dumps(document))

    settings: Object = {"elastic": {"enabled": True}}
    with world(*A_AND_B, directory=tmp_path, settings=settings) as here:
        here.wait_for(**POOL)
        eventually(lambda: here.condition() == "AllCharged", "it is charged")
        of_a = {"quota": "ElasticQuota team-a/q", "resource": "cpu"}
        eventually(lambda: here.metric("elastic_min", **of_a) == 2, "it is shown")
        switch(is_on=False)
        here.wait_for()
        for namespace in ("team-a", "team-b"):
            eventually(lambda n=namespace: here.condition(n) == "Disabled", "it is not charged")  # type: ignore[misc]
        assert here.metric("elastic_min", **of_a) is None
        switch(is_on=True)
        here.wait_for(**POOL)
        eventually(lambda: here.condition() == "AllCharged", "it is charged again")


def test_of_those_that_are_switched_off_a_status_that_is_refused_stops_no_other(
    tmp_path: Path,
) -> None:
    def refuse(call: Call, proceed: Proceed) -> object:
        if call.namespace == "team-a" and call.subresource == "status":
            raise ForbiddenError("by a policy of others")
        return proceed()

    document = {
        "apiVersion": "deferredquota.io/v1alpha1",
        "kind": "Configuration",
        "elastic": {"enabled": False},
    }
    settings: Object = {"elastic": {"enabled": True}}
    with world(*A_AND_B, directory=tmp_path, settings=settings) as here:
        here.wait_for(**POOL)
        for namespace in ("team-a", "team-b"):
            eventually(lambda n=namespace: here.condition(n) == "AllCharged", "it is charged")  # type: ignore[misc]
        here.harness.client.on("patch", ELASTIC_QUOTAS, refuse)
        (tmp_path / "configuration.yaml").write_text(json.dumps(document))
        eventually(lambda: here.condition("team-b") == "Disabled", "it is not charged")
        assert here.condition("team-a") == "AllCharged"


def test_a_quota_of_no_namespace_counts_nothing_and_stops_no_other() -> None:
    # the definition of nos allows that, and no handler is asked in the namespace of the object
    nothing = an_elastic_quota("default", {"cpu": 1}, {"cpu": 1}, namespaces=[])
    with world(an_elastic_quota("team-a", {"cpu": 2}), nothing) as here:
        here.wait_for(epool_default={"requests.cpu": "2"})
        assert here.bind("web", "team-a").allowed
        eventually(lambda: here.condition() == "AllCharged", "the other is charged")
        eventually(lambda: here.status().get("used") == {"cpu": "1"}, "its status is written")
        found = here.status("default", composite=True)["conditions"]
        assert [(one["reason"], one["message"]) for one in found] == [  # type: ignore[attr-defined]
            ("Invalid", "spec.namespaces: Required value: must name at least one")
        ]


def _events_of(here: World, reason: str) -> dict[str, str]:
    events = map(FieldReader, here.harness.api.list(EVENTS).items)
    return {
        one.child("involvedObject").text("name"): one.text("message")
        for one in events
        if one.text("reason") == reason
    }


def test_in_a_pool_of_nothing_every_pod_that_asks_is_refused() -> None:
    """X24: all min are 0; a pod that asks for nothing of it is bound."""
    with world(an_elastic_quota("team-a", {"cpu": 0})) as here:
        here.wait_for(epool_default={"requests.cpu": "0"})
        assert here.bind("a0", "team-a").message == (
            "elastic pool default is used up, requested: cpu=1, used: cpu=0, size: cpu=0"
        )
        assert here.bind("a1", "team-a", memory="1Gi").allowed


def test_a_composite_says_which_of_its_namespaces_are_not_there() -> None:
    whole = an_elastic_quota("team-c", {"cpu": 1}, namespaces=["team-a", "team-x"])
    with world(whole) as here:
        here.wait_for(epool_default={"requests.cpu": "1"})
        eventually(
            lambda: here.status("team-c", composite=True).get("conditions") is not None,
            "there is a condition",
        )
        (condition,) = FieldReader(here.status("team-c", composite=True)).children("conditions")
        assert (condition.text("reason"), condition.text("message")) == (
            "PartlyCharged",
            "1 of 2 namespaces have not opted in or do not exist: team-x",
        )


def test_an_object_of_others_is_left_alone_and_reported() -> None:
    foreign: Object = {
        "apiVersion": "deferredquota.io/v1alpha1",
        "kind": "ClusterDeferredQuota",
        "metadata": {"name": "eq.team-b.q"},
        "spec": {"namespaceSelector": {}, "hard": {"requests.cpu": "9"}},
    }
    with world(foreign, *A_AND_B) as here:
        here.wait_for(**{**POOL, "eq_team-b_q": {"requests.cpu": "9"}})
        eventually(lambda: here.condition("team-b") == "NameTaken", "the quota says so")
        assert here.condition("team-a") == "AllCharged"


def test_the_second_quota_of_a_namespace_and_an_unsound_one_do_not_count() -> None:
    second = an_elastic_quota("team-c", {"cpu": 9}, namespaces=["team-b", "team-c"])
    unsound = an_elastic_quota("team-c", {"cpu": 2}, {"cpu": 1})
    with world(*A_AND_B, second, unsound) as here:
        eventually(lambda: here.condition("team-c") == "Invalid", "min above max is told")
        # the composite comes first by kind: it stays, and the quota of team-b does not count
        here.wait_for(epool_default={"requests.cpu": "11"})
        eventually(lambda: here.condition("team-b") == "Conflict", "the other is named")
        (told,) = FieldReader(here.status("team-b")).children("conditions")
        assert "has CompositeElasticQuota team-c/q already" in told.text("message")
        assert "kubectl delete -n team-b elasticquota q" in told.text("message")


@pytest.mark.parametrize(
    "edit",
    [
        {"spec": {"min": {"cpu": 9}}},
        {"spec": {"lendable": {"cpu": 9}}},
        {"metadata": {"labels": {"deferredquota.io/pool": "Not.A.Name"}}},
    ],
    ids=["min above max", "lendable above min", "a pool that cannot be"],
)
def test_an_edit_that_makes_no_sense_lifts_no_limit(edit: Object) -> None:
    """As it is stored where no handler is asked: in a namespace that has not opted in."""
    one = an_elastic_quota("team-a", {"cpu": 1}, {"cpu": 1})
    with world(one) as here:
        expected = {"epool_default": {"requests.cpu": "1"}, "eq_team-a_q": {"requests.cpu": "1"}}
        here.wait_for(**expected)
        here.harness.api.patch(ELASTIC_QUOTAS, "q", edit, namespace="team-a")
        eventually(lambda: here.condition("team-a") == "Invalid", "what makes no sense is told")
        here.wait_for(**expected)


def test_without_the_setting_nothing_is_charged(tmp_path: Path) -> None:
    settings: Object = {"elastic": {"enabled": False}}
    left: Object = {
        "apiVersion": "deferredquota.io/v1alpha1",
        "kind": "ClusterDeferredQuota",
        "metadata": {"name": "epool.default", "labels": {"deferredquota.io/elastic": "true"}},
        "spec": {"namespaceSelector": {}, "hard": {"requests.cpu": "1"}},
    }
    with world(left, *A_AND_B, directory=tmp_path, settings=settings) as here:
        here.wait_for()
        assert here.bind("a0", "team-a", cpu="9").allowed


def _no_pages(call: Call, proceed: Proceed) -> object:
    """Keep caches from being filled."""
    if call.is_paged:
        unavailable(call, proceed)
    return proceed()


def test_a_cache_that_is_behind_gives_nothing_that_is_not_lent_any_more() -> None:
    with world(*A_AND_B) as here:
        here.wait_for(**POOL)
        held = here.harness.client.on("watch", ELASTIC_QUOTAS, unavailable)
        listed = here.harness.client.on("list", ELASTIC_QUOTAS, _no_pages)
        here.harness.cluster.cut_watches()
        api = here.harness.api
        api.patch(ELASTIC_QUOTAS, "q", {"spec": {"min": {"cpu": 1}}}, namespace="team-a")
        api.delete(CLUSTER_DEFERRED_QUOTAS, "epool.default")  # which has it written again
        hard = {"requests.cpu": "3"}
        eventually(lambda: here.hard().get("epool.default") == hard, "by what is stored")
        held.remove()
        listed.remove()


def test_a_namespace_joins_a_pool_before_it_leaves_the_other() -> None:
    with world(*A_AND_B, an_elastic_quota("team-c", {"cpu": 1})) as here:
        here.wait_for(**{**POOL, "epool_default": {"requests.cpu": "5"}})
        moved = {"metadata": {"labels": {"deferredquota.io/pool": "zoo"}}}
        for namespace in ("team-c", "team-b"):
            here.harness.api.patch(ELASTIC_QUOTAS, "q", moved, namespace=namespace)
            eventually(lambda name=namespace: name not in here.members("epool.default"), "it left")  # type: ignore[misc]
        written = [
            call.name
            for call in here.harness.client.calls
            if call.kind == CLUSTER_DEFERRED_QUOTAS and call.verb in ("create", "patch")
        ]
        created = [
            str(call.body["metadata"]["name"])
            for call in here.harness.client.calls
            if call.kind == CLUSTER_DEFERRED_QUOTAS and call.verb == "create"
        ]
        assert created[-1] == "epool.zoo"
        assert [name for name in written if name][-3:] == [
            "epool.default",
            "epool.zoo",
            "epool.default",
        ]


@pytest.mark.parametrize("error", [UnavailableError("try again"), InvalidError("too many")])
def test_a_namespace_leaves_no_pool_while_it_cannot_join_the_other(error: ApiError) -> None:
    def refuse(call: Call, proceed: Proceed) -> object:
        if str(call.body["metadata"]["name"]) == "epool.zoo":
            raise error
        return proceed()

    other = an_elastic_quota("team-c", {"cpu": 1})
    other["metadata"]["labels"] = {"deferredquota.io/pool": "ark"}  # type: ignore[index]
    with world(*A_AND_B, other) as here:
        here.wait_for(epool_ark={"requests.cpu": "1"}, **POOL)
        reactor = here.harness.client.on("create", CLUSTER_DEFERRED_QUOTAS, refuse)
        moved = {"metadata": {"labels": {"deferredquota.io/pool": "zoo"}}}
        for namespace in ("team-b", "team-c"):
            here.harness.api.patch(ELASTIC_QUOTAS, "q", moved, namespace=namespace)
        edit = {"spec": {"max": {"cpu": 5}}}
        here.harness.api.patch(ELASTIC_QUOTAS, "q", edit, namespace="team-a")
        eventually(lambda: "eq.team-a.q" in here.derived(), "what else there is goes on")
        assert here.members("epool.default") == ["team-a", "team-b"]
        assert here.members("epool.ark") == ["team-c"]
        reactor.remove()
        eventually(lambda: here.members("epool.default") == ["team-a"], "it left")
        eventually(lambda: "epool.ark" not in here.derived(), "it left")
        assert here.members("epool.zoo") == ["team-b", "team-c"]


@pytest.mark.parametrize("refused", ["epool.ark", "epool.default"])
def test_namespaces_that_change_places_leave_no_pool_before_they_join(refused: str) -> None:
    def refuse(call: Call, proceed: Proceed) -> object:
        if call.name == refused:
            raise InvalidError("too many")
        return proceed()

    def labelled(pool: str) -> Object:
        return {"metadata": {"labels": {"deferredquota.io/pool": pool}}}

    other = an_elastic_quota("team-c", {"cpu": 1})
    other["metadata"]["labels"] = {"deferredquota.io/pool": "ark"}  # type: ignore[index]
    with world(*A_AND_B, other) as here:
        here.wait_for(epool_ark={"requests.cpu": "1"}, **POOL)
        api, hold = here.harness.api, here.harness.client.on("list", ELASTIC_QUOTAS, _no_pages)
        patch = here.harness.client.on("patch", CLUSTER_DEFERRED_QUOTAS, refuse)
        api.patch(ELASTIC_QUOTAS, "q", labelled("ark"), namespace="team-b")
        api.patch(ELASTIC_QUOTAS, "q", labelled("default"), namespace="team-c")
        hold.remove()
        edit = {"spec": {"max": {"cpu": 5}}}
        api.patch(ELASTIC_QUOTAS, "q", edit, namespace="team-a")
        eventually(lambda: "eq.team-a.q" in here.derived(), "what else there is goes on")
        in_any = {*here.members("epool.default"), *here.members("epool.ark")}
        assert in_any == {"team-a", "team-b", "team-c"}
        patch.remove()
        eventually(lambda: here.members("epool.ark") == ["team-b"], "it moved")
        eventually(lambda: here.members("epool.default") == ["team-a", "team-c"], "it moved")


def test_one_that_cannot_be_written_stops_no_other() -> None:
    def refuse(call: Call, proceed: Proceed) -> object:
        if str(call.body["metadata"]["name"]) == "epool.default":
            raise InvalidError(words)
        return proceed()

    words = "spec.hard: Too many: 128: must have at most 64 items"

    with world() as here:
        reactor = here.harness.client.on("create", CLUSTER_DEFERRED_QUOTAS, refuse)
        for made in A_AND_B:
            here.harness.create(made)
        here.wait_for(**{"eq_team-b_q": {"requests.cpu": "3"}})
        for namespace in ("team-a", "team-b"):
            eventually(lambda n=namespace: here.condition(n) == "Refused", "the quota says so")  # type: ignore[misc]
            (condition,) = FieldReader(here.status(namespace)).children("conditions")
            assert (condition.text("status"), condition.text("message")) == (
                "False",
                f"no bind is charged by these amounts: {words}",
            )
        here.harness.client.on("create", CLUSTER_DEFERRED_QUOTAS, unavailable, times=1)
        here.harness.create(an_elastic_quota("team-c", {"cpu": 1}))  # of the same pool
        eventually(lambda: here.condition("team-c") == "Refused", "the quota says so")
        assert here.condition("team-a") == "Refused"
        reactor.remove()
        here.wait_for(epool_default={"requests.cpu": "5"}, **{"eq_team-b_q": {"requests.cpu": "3"}})
        for namespace in ("team-a", "team-b", "team-c"):
            eventually(lambda n=namespace: here.condition(n) == "AllCharged", "all are charged")  # type: ignore[misc]


def test_a_pool_whose_edit_is_refused_is_charged_by_the_former_one_and_says_so() -> None:
    other = an_elastic_quota("team-c", {"cpu": 1})
    other["metadata"]["labels"] = {"deferredquota.io/pool": "zoo"}  # type: ignore[index]

    def refuse(call: Call, proceed: Proceed) -> object:
        if call.name == "epool.default" and not call.subresource:
            raise InvalidError("spec: too many")
        return proceed()

    with world(*A_AND_B, other) as here:
        here.wait_for(epool_zoo={"requests.cpu": "1"}, **POOL)
        eventually(lambda: here.condition("team-b") == "AllCharged", "all are charged")
        reactor = here.harness.client.on("patch", CLUSTER_DEFERRED_QUOTAS, refuse)
        edit = {"spec": {"min": {"cpu": 3}}}
        here.harness.api.patch(ELASTIC_QUOTAS, "q", edit, namespace="team-a")
        eventually(lambda: here.condition("team-a") == "Refused", "the quota says so")
        eventually(lambda: here.condition("team-b") == "Refused", "that of the same pool says so")
        assert here.condition("team-c") == "AllCharged"
        assert here.hard()["epool.default"] == {"requests.cpu": "4"}
        undo = {"spec": {"min": {"cpu": 2}}}
        here.harness.api.patch(ELASTIC_QUOTAS, "q", undo, namespace="team-a")
        eventually(lambda: here.condition("team-a") == "AllCharged", "it is as it was")
        reactor.remove()


def run(here: World, name: str, namespace: str) -> None:
    """Create a pod, and bind it once it is released."""
    here.wait(name, namespace)
    here.says(name, namespace, "Released")
    here.harness.api.bind(a_binding(name, namespace=namespace))


def all_borrowed(here: World) -> None:
    """Let team-b take 3 of the pool's 4, and team-a the rest."""
    here.wait_for(**POOL)
    for name, namespace in (*((f"b{number}", "team-b") for number in range(3)), ("a0", "team-a")):
        run(here, name, namespace)


def test_what_is_freed_goes_to_an_owner_before_a_borrower() -> None:
    with world(*A_AND_B, is_gated=True) as here:
        all_borrowed(here)
        for name, namespace in (("b3", "team-b"), ("a1", "team-a")):  # the borrower asks first
            here.wait(name, namespace)
            here.says(name, namespace, "QuotaExceeded")
        here.end("b0", "team-b")
        here.says("a1", "team-a", "Released")
        assert here.reason("b3", "team-b") != "Released"
        here.end("a0", "team-a")
        here.says("b3", "team-b", "Released")


def test_a_borrower_says_which_pods_come_first() -> None:
    largest = an_elastic_quota("team-b", {"cpu": 1})
    with world(an_elastic_quota("team-a", {"cpu": 3}), largest, is_gated=True) as here:
        here.wait_for(epool_default={"requests.cpu": "4"})
        for number in range(3):
            run(here, f"b{number}", "team-b")
        here.wait("a0", "team-a", "3")
        here.says("a0", "team-a", "QuotaExceeded")
        here.wait("b3", "team-b")  # for which there is room
        here.says("b3", "team-b", "OwnersFirst")
        found = observed_condition(here.harness.stored(PODS, "b3", "team-b")).condition
        assert found is not None
        assert found.text == (
            "pods of eq/q in namespace team-a, which stay within its min, come first"
        )
        for number in range(2):
            here.end(f"b{number}", "team-b")
        here.says("a0", "team-a", "Released")
        here.says("b3", "team-b", "QuotaExceeded")


def test_a_namespace_whose_ledger_cannot_be_written_holds_no_other_back() -> None:
    def refuse(call: Call, proceed: Proceed) -> object:
        if call.namespace == "team-a":
            raise ForbiddenError("the namespace is being terminated")
        return proceed()

    quotas = (an_elastic_quota("team-a", {"cpu": 3}), an_elastic_quota("team-b", {"cpu": 1}))
    with world(*quotas, is_gated=True) as here:
        here.wait_for(epool_default={"requests.cpu": "4"})
        for number in range(3):
            run(here, f"b{number}", "team-b")
        here.wait("a0", "team-a", "3")
        here.says("a0", "team-a", "QuotaExceeded")
        here.wait("b3", "team-b")
        here.says("b3", "team-b", "OwnersFirst")
        here.harness.client.on("update", QUOTA_LEDGERS, refuse)
        here.end("a0", "team-a")
        here.says("b3", "team-b", "Released")
