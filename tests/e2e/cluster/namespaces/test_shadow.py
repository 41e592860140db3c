"""Shadow mode changes nothing, and says what opting in would change, to the number."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster import objects
from tests.e2e.cluster.command_line import run
from tests.e2e.cluster.objects import Answer
from tests.e2e.cluster.product import Product, a_team
from tests.e2e.cluster.tenant import REAL, Tenant
from tests.e2e.cluster.waiting import becomes, eventually
from webhook.cli import ExitCode

HARD: Final = {"requests.cpu": "4", "pods": "9"}
_numbers = itertools.count()


@pytest.fixture
def watched(plane: ControlPlane, product: Product) -> Iterator[Tenant]:
    """A new namespace in shadow mode, of which a record has begun."""
    assert product.webhooks
    with a_team(plane, f"e2e-shadow-{next(_numbers)}", mode="shadow", gating="") as tenant:
        eventually(lambda: "shadow" in tenant.ledger(), "a record has begun")
        yield tenant


def report(plane: ControlPlane, tenant: Tenant) -> dict[str, Any]:
    result = run(plane, "shadow", "report", tenant.namespace, "-o", "json")
    assert result.exit_code == ExitCode.OK, result.output
    (entry,) = json.loads(result.stdout)["namespaces"]
    return dict(entry)


def play(tenant: Tenant) -> list[Answer]:
    """Play the same story in a namespace; return all answers.

    Of four cpu two are charged for pods that no scheduler finds a node for.
    """
    tenant.quota(is_deferred=False, hard=HARD)
    answers: list[Answer] = []
    for name in ("runs-1", "runs-2"):
        made = tenant.create(name, "1")
        answers += [made, tenant.bind(name, uid=made.uid)]
    answers += [tenant.create("stuck-1", "1"), tenant.create("stuck-2", "1")]
    becomes(lambda: tenant.native()[1]["requests.cpu"], "4", "what the API server charges")
    answers += [tenant.create("web-1", "1") for _ in range(3)]
    answers += [tenant.create("wide", "3"), tenant.create("huge", "5")]
    answers += [tenant.create("web-1", "1", dry_run=True), tenant.resize("runs-1", "2")]
    tenant.delete("stuck-1")
    becomes(lambda: tenant.native()[1]["requests.cpu"], "3", "what the API server charges")
    made = tenant.create("web-2", "1")
    answers += [made, tenant.bind("web-2", uid=made.uid)]
    tenant.quota("p2", is_deferred=False, hard={"pods": "4"})
    return [*answers, tenant.create("fifth", "0")]


def seen(tenant: Tenant, answer: Answer) -> tuple[Any, ...]:
    """Return what an answer says that does not differ from one namespace to another."""
    if not answer.ok:
        return answer.code, answer.reason, answer.message, answer.warnings
    meta = answer.body["metadata"]
    spec = {key: value for key, value in answer.body.get("spec", {}).items() if key != "volumes"}
    for container in spec.get("containers", ()):
        container.pop("volumeMounts", None)  # of a token, with a name of its own
    assert meta.get("namespace", tenant.namespace) == tenant.namespace
    return (
        answer.code,
        meta.get("annotations"),
        meta.get("labels"),
        spec,
        answer.body.get("status"),
        answer.warnings,
    )


def stored(tenant: Tenant) -> dict[str, tuple[Any, ...]]:
    found = tenant.api.get(objects.pods(tenant.namespace)).body["items"]
    return {
        one["metadata"]["name"]: (
            sorted(one["metadata"].get("annotations", {})),
            one["spec"].get("schedulingGates"),
            one["spec"].get("nodeName"),
            [each["type"] for each in one["status"].get("conditions", ())],
        )
        for one in found
    }


def test_nothing_changes_and_the_numbers_are_right(
    plane: ControlPlane, product: Product, watched: Tenant, plain: Tenant
) -> None:
    in_shadow, elsewhere = play(watched), play(plain)
    assert [seen(watched, one) for one in in_shadow] == [seen(plain, one) for one in elsewhere]
    codes = [201] * 6 + [403] * 7 + [201] * 2 + [403]
    assert [one.code for one in in_shadow] == codes
    assert stored(watched) == stored(plain)
    # how much is used the quota controller may count from a cache that is a little late
    (hard, used), (plain_hard, plain_used) = watched.native(), plain.native()
    assert (hard, set(used)) == (plain_hard, set(plain_used))
    assert watched.events("QuotaReserved") == []

    becomes(
        lambda: report(plane, watched)["creations"],
        {
            "attempts": 11,
            "stored": 5,
            "refused": 6,
            "wouldRun": 3,
            "wouldWait": 1,
            "neverFits": 1,
            "stillRefused": 1,
            "unjudged": 0,
            "unexplained": 0,
            "newlyRefused": 0,
        },
        "the creations that are reported",
    )
    found = report(plane, watched)
    assert found["pods"] == {
        "created": 5,
        "createdOver": 0,
        "bound": 3,
        "boundOver": 0,
        "grown": 0,
        "grownOver": 0,
    }
    workloads = {one["name"]: (one["attempts"], one["fate"]) for one in found["workloads"]}
    assert workloads == {
        "Pod/web-1": (3, "wouldRun"),
        "Pod/wide": (1, "wouldWait"),
        "Pod/huge": (1, "neverFits"),
        "Pod/fifth": (1, "stillRefused"),
    }
    (p1,) = [one for one in found["quotas"] if one["name"] == "p1"]
    cpu = p1["resources"]["requests.cpu"]
    assert (cpu["hard"], cpu["charged"]["peak"]) == ("4", "4")
    assert (cpu["assigned"]["now"], cpu["assigned"]["peak"]) == ("3", "3")
    eventually(
        lambda: all(one["seconds"] >= 3 for one in report(plane, watched)["quotas"]),
        "quotas are watched while nothing changes",
    )
    listed = plane.kubectl("get", "ql", "--namespace", watched.namespace)
    assert "shadow: p1 requests.cpu 3/4 (charged 4)" in listed
    assert product.metric("shadow_creations_total", result="wouldWait") >= 1
    assert "podsResourceVersion" not in watched.ledger()
    text = run(plane, "shadow", "report", watched.namespace)
    print(text.stdout)
    assert (
        "3 of the 6 denied, by 1 workload: would be admitted, and quota would be free"
        in text.stdout
    )
    assert text.exit_code == ExitCode.OK


def test_a_workload_that_tries_again_and_again_is_one(plane: ControlPlane, watched: Tenant) -> None:
    watched.quota(is_deferred=False, hard={"requests.cpu": "1"})
    template = {
        "metadata": {"labels": {"app": "web"}},
        "spec": {
            "schedulerName": REAL,
            "containers": [
                {"name": "c", "image": "a/b", "resources": {"requests": {"cpu": "700m"}}}
            ],
        },
    }
    wanted = {
        "metadata": {"name": "web"},
        "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "template": template},
    }
    path = f"/apis/apps/v1/namespaces/{watched.namespace}/replicasets"
    assert watched.api.create(path, wanted).ok
    eventually(lambda: report(plane, watched)["creations"]["refused"] >= 2, "refusals are seen")
    found = report(plane, watched)
    assert {one["name"] for one in found["workloads"]} == {"ReplicaSet/web"}
    attempts = sum(one["attempts"] for one in found["workloads"])
    assert attempts == found["creations"]["refused"]
    assert found["creations"]["stored"] == 1
    assert found["creations"]["unexplained"] == 0
    watched.api.delete(f"{path}/web")


def test_it_ends_in_deferring_or_as_it_began(
    plane: ControlPlane, product: Product, plain: Tenant
) -> None:
    plain.quota(is_deferred=False, hard=HARD)
    begun = run(plane, "enable", "--shadow", plain.namespace)
    assert begun.exit_code == ExitCode.OK, begun.output
    assert f"{plain.namespace}: in shadow mode\n" in begun.stdout
    plain.pod("runs", "1")
    assert plain.bind("runs").ok
    plain.pod("waits", "3")
    assert set(plain.native()[0]) == set(HARD)
    becomes(
        lambda: plain.ledger()["summary"],
        "shadow: p1 requests.cpu 1/4 (charged 4)",
        "the line for people",
    )
    doctor = run(plane, "doctor", plain.namespace, "-o", "json")
    serious = [one for one in json.loads(doctor.stdout)["findings"] if one["severity"] != "info"]
    assert serious == []

    enabled = run(plane, "enable", plain.namespace)
    assert enabled.exit_code == ExitCode.OK, enabled.output
    assert set(plain.native()[0]) == {"pods"}
    plain.pod("more", "3")
    assert plain.bind("more").ok
    assert "exceeded quota: p1" in plain.bind("waits").message
    assert plain.charged() == "4"
    assert "shadow" not in plain.ledger()
    assert plain.ledger()["summary"].startswith("p1 requests.cpu")
    refused = run(plane, "enable", "--shadow", plain.namespace)
    assert refused.exit_code == ExitCode.FINDINGS
    assert "shadow.deferred" in refused.output

    disabled = run(plane, "disable", plain.namespace)
    assert disabled.exit_code == ExitCode.OK, disabled.output
    again = run(plane, "enable", "--shadow", plain.namespace)
    assert again.exit_code == ExitCode.OK, again.output
    ended = run(plane, "disable", plain.namespace)
    assert ended.exit_code == ExitCode.OK, ended.output
    becomes(lambda: plain.ledger()["summary"], "shadow: ended", "the line for people")
    assert product.webhooks


def test_no_webhook_and_no_controller_is_missed(
    plane: ControlPlane, product: Product, watched: Tenant
) -> None:
    watched.quota(is_deferred=False, hard=HARD)
    for process in product.processes:
        process.pause()
    made = watched.create("web", "1")  # nobody answers, which is as good
    assert made.ok, str(made)
    assert watched.bind("web", uid=made.uid).ok
    assert "exceeded quota: p1" in watched.create("huge", "5").message
    product.restore()
    eventually(
        lambda: report(plane, watched)["pods"]["bound"] == 1, "the bind is found in the pods"
    )


def test_what_was_seen_is_added_when_a_webhook_ends(
    plane: ControlPlane, product: Product, watched: Tenant
) -> None:
    watched.quota(is_deferred=False, hard=HARD)
    assert watched.create("huge", "5").code == 403
    for process in product.webhooks:
        process.terminate()
    try:
        eventually(
            lambda: report(plane, watched)["creations"]["neverFits"] == 1, "the refusal is added"
        )
    finally:
        product.restore()


def test_a_record_can_begin_anew(plane: ControlPlane, watched: Tenant) -> None:
    watched.quota(is_deferred=False, hard=HARD)
    watched.pod("web", "1")
    eventually(lambda: report(plane, watched)["pods"]["created"] == 1, "the pod is counted")
    assert run(plane, "shadow", "reset", watched.namespace).exit_code == ExitCode.OK
    watched.pod("more", "1")
    eventually(lambda: "shadow" in watched.ledger(), "a record has begun")
    assert report(plane, watched)["pods"]["created"] <= 1
