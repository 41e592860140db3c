"""`deferred-quota top`: rows of ledgers, bars, orders, and what is not known."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import a_container, a_pod, a_quota, out_of_bounds
from tests.operations.healthy import a_lease
from tests.operations.scenes import a_namespace
from tests.reactions import Call, Proceed, ReactiveClient, forbid
from webhook.cli import ExitCode, cli
from webhook.cli.cluster_options import watched
from webhook.fakecluster.manifests.loading import load_cluster
from webhook.fakecluster.storage import FakeCluster
from webhook.kube.api import (
    CLUSTER_DEFERRED_QUOTAS,
    LEASES,
    NAMESPACES,
    QUOTA_LEDGERS,
    VALIDATING_WEBHOOKS,
    ForbiddenError,
    UnavailableError,
)
from webhook.operations.explain.session import ExplainOptions, Session
from webhook.operations.quota_usage import bar_cells, read_usage
from webhook.quota.amounts.quantity import Quantity
from webhook.state.well_known import DEFERRED_MODE, EMERGENCY_SINCE


def account(used: str, hard: str, *, reserved: str = "0", pending: str = "0") -> dict[str, object]:
    amounts = {"hard": hard, "used": used, "reserved": reserved, "pending": pending}
    return {
        "observed": {"uid": "u", "specHash": "h"},
        **{name: {"requests.cpu": amount} for name, amount in amounts.items()},
    }


def ledger(
    namespace: str, accounts: Mapping[str, Any], *, counted: str = "True"
) -> dict[str, object]:
    """Return a ledger with one reservation for each account that has something reserved."""
    lines = [
        f"uid-{name} web-1 Bind {index} {name} requests.cpu={one['reserved']['requests.cpu']}"
        for index, (name, one) in enumerate(accounts.items(), 1)
        if one.get("reserved", {}).get("requests.cpu", "0") != "0"
    ]
    return {
        "apiVersion": "deferredquota.io/v1alpha1",
        "kind": "QuotaLedger",
        "metadata": {
            "name": "deferred",
            "namespace": namespace,
            "uid": namespace,
            "resourceVersion": "5",
        },
        "status": {
            "quotas": [{"name": name, **one} for name, one in accounts.items()],
            "reservations": "\n".join(lines),
            "podsResourceVersion": "4",
            "podsBarrier": "0",
            "serial": 7,
            "conditions": [{"type": "Counted", "status": counted}],
        },
    }


def run(tmp_path: Path, objects: Sequence[object], *args: str) -> Result:
    path = tmp_path / "snapshot.yaml"
    path.write_text(yaml.safe_dump_all(list(objects)), encoding="utf-8")
    return CliRunner().invoke(cli, ["top", *args, "--snapshot", str(path)])


TWO = (
    ledger("team-b", {"compute": account("1", "4", reserved="1", pending="3")}),
    ledger("team-a", {"compute": account("3", "4"), "cdq/both": account("2", "10")}),
    ledger("team-c", {"cdq/both": account("5", "10", reserved="1")}),
)


def rows(done: Result) -> list[dict[str, Any]]:
    assert done.exit_code == ExitCode.OK, done.output
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def test_every_quota_has_a_row_for_each_resource(tmp_path: Path) -> None:
    found = rows(run(tmp_path, TWO, "-o", "json"))
    assert found[1] == {
        "namespace": "team-b",
        "quota": "compute",
        "resource": "requests.cpu",
        "used": "1",
        "reserved": "1",
        "pending": "3",
        "hard": "4",
    }
    assert [(one["namespace"], one["quota"]) for one in found] == [
        ("team-a", "compute"),
        ("team-b", "compute"),
        ("", "both"),
    ]
    assert (found[2]["used"], found[2]["reserved"], found[2]["hard"]) == ("7", "1", "10")


@pytest.mark.parametrize(
    ("order", "first"), [("name", "team-a"), ("share", ""), ("pending", "team-b")]
)
def test_the_rows_are_sorted(tmp_path: Path, order: str, first: str) -> None:
    assert rows(run(tmp_path, TWO, "-o", "json", "--sort", order))[0]["namespace"] == first


def test_bars_show_what_is_used_reserved_and_pending(tmp_path: Path) -> None:
    lines = run(tmp_path, TWO).stdout.splitlines()
    assert lines[1].endswith("[#######   ]")
    assert lines[2].endswith("[##++..... ]"), "two more wait than quota is reserved for"
    assert lines[3].startswith("(several)")
    full = ledger("team-a", {"compute": account("6", "4", reserved="1")})
    assert run(tmp_path, [full]).stdout.splitlines()[1].endswith("[##########]!")


def test_an_open_emergency_is_named_above_the_table(tmp_path: Path) -> None:
    guards: dict[str, Any] = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "deferred-quota", "annotations": {EMERGENCY_SINCE: "2026-11-26"}},
    }
    path = tmp_path / "live.yaml"
    path.write_text(yaml.safe_dump_all([*TWO, guards]), encoding="utf-8")
    cluster = load_cluster([path])
    api = ReactiveClient(cluster)
    session = Session(api, ExplainOptions())
    (note, *_) = read_usage(session).notes
    assert note.startswith("the emergency is open since 2026-11-26: the API server enforces")
    api.on("get", VALIDATING_WEBHOOKS, forbid)
    assert not any("emergency" in one for one in read_usage(session).notes)


def test_one_namespace_is_shown_alone(tmp_path: Path) -> None:
    objects = [*TWO, a_namespace("other", mode="")]
    done = run(tmp_path, objects, "-n", "team-b", "-n", "other", "-o", "json")
    assert [one["namespace"] for one in rows(done)] == ["team-b"]
    assert "namespace other has not opted in" in done.stderr
    assert run(tmp_path, objects, "-n", "other").stdout == "no deferred quotas\n"


def test_a_namespace_that_does_not_exist_is_an_error_beside_what_others_use(
    tmp_path: Path,
) -> None:
    objects = [*TWO, a_namespace("team-b")]
    done = run(tmp_path, objects, "-n", "team-b", "-n", "typo")
    assert done.exit_code == ExitCode.FINDINGS
    assert "team-b" in done.stdout
    assert done.stderr == 'Error: namespaces "typo" not found\n'
    alone = run(tmp_path, objects, "-n", "typo")
    assert (alone.exit_code, alone.stdout) == (ExitCode.FINDINGS, "")


def test_a_file_without_namespaces_does_not_say_which_exist(tmp_path: Path) -> None:
    done = run(tmp_path, TWO, "-n", "other")
    assert (done.exit_code, done.stdout) == (ExitCode.OK, "no deferred quotas that are counted\n")
    assert done.stderr == "note: namespace other has no ledger that counts\n"


def test_a_namespace_that_has_opted_out_is_one_that_has_not_opted_in(tmp_path: Path) -> None:
    left = ledger("team-a", {})
    condition = {"type": "Counted", "status": "False", "reason": "OptedOut"}
    left["status"] = {**cast("Any", left["status"]), "conditions": [condition]}
    assert run(tmp_path, [left]).stderr == ""
    done = run(tmp_path, [left, a_namespace("team-a", mode="")], "-n", "team-a")
    assert "namespace team-a has not opted in" in done.stderr


def test_a_shared_quota_is_as_full_as_all_its_namespaces_make_it(tmp_path: Path) -> None:
    held = [
        {"name": "team-a", "granted": {"requests.cpu": "2"}},
        {
            "name": "team-c",
            "granted": {"requests.cpu": "7"},
            "headroom": {"requests.cpu": "1"},
        },
    ]
    both = {
        "apiVersion": "deferredquota.io/v1alpha1",
        "kind": "ClusterDeferredQuota",
        "metadata": {"name": "both"},
        "spec": {"namespaceSelector": {}, "hard": {"requests.cpu": "10"}},
        "status": {"namespaces": held},
    }
    (_, shared) = rows(run(tmp_path, [*TWO, both], "-n", "team-a", "-o", "json"))
    assert (shared["quota"], shared["used"], shared["hard"]) == ("both", "8", "10")


def test_what_other_namespaces_hold_may_not_be_known() -> None:
    asked, client = session()
    client.cluster.load([(QUOTA_LEDGERS, TWO[1])])
    client.on("list", CLUSTER_DEFERRED_QUOTAS, forbid)
    report = read_usage(asked, ["team-a"])
    assert [(row.quota, str(row.used)) for row in report.rows][-1] == ("both", "2")
    assert "what other namespaces use of cluster quotas: no right to read" in report.notes


@pytest.mark.parametrize("place", [(), ("-n", "team-a")], ids=["all", "one"])
def test_ledgers_that_may_not_be_read_are_not_said_to_be_missing(
    tmp_path: Path, place: tuple[str, ...]
) -> None:
    path = tmp_path / "mine.json"
    head = {"apiVersion": "deferredquota.io/v1alpha1", "kind": "SnapshotList", "format": 1}
    unread = ["QuotaLedger.deferredquota.io/v1alpha1"]
    path.write_text(json.dumps({**head, "unread": unread, "items": []}), encoding="utf-8")
    done = CliRunner().invoke(cli, ["top", "--snapshot", str(path), *place])
    assert done.stdout == "no deferred quotas: the snapshot lacks ledgers\n"
    assert "has not opted in" not in done.stderr
    assert ": not in the snapshot" in done.stderr
    assert "take it with the right to list quotaledgers" in done.stderr


def test_a_ledger_that_is_not_counted_or_cannot_be_read_is_named(tmp_path: Path) -> None:
    broken = ledger("team-d", {"compute": {**account("1", "2"), "used": {"requests.cpu": "x"}}})
    blank = {**ledger("team-e", {}), "status": {}}
    done = run(tmp_path, [ledger("team-a", {}, counted="False"), broken, blank])
    assert "usage of namespace team-e is not counted yet" in done.stderr
    assert "usage of namespace team-a is not counted now" in done.stderr
    assert "the ledger of namespace team-d cannot be read: status.quotas" in done.stderr
    assert "--watch cannot be used with --snapshot" in run(tmp_path, TWO, "--watch").stderr


@pytest.mark.parametrize("others", [[], [TWO[0]]], ids=["alone", "beside another"])
def test_of_all_namespaces_one_whose_ledger_is_gone_is_named(others: list[Any]) -> None:
    cluster = FakeCluster()
    cluster.load([(QUOTA_LEDGERS, one) for one in others])
    named = {"team-b": DEFERRED_MODE, "team-d": DEFERRED_MODE, "other": "", "system": DEFERRED_MODE}
    cluster.load([(NAMESPACES, a_namespace(name, mode=mode)) for name, mode in named.items()])
    client = ReactiveClient(cluster)
    asked = Session(client, ExplainOptions(system_namespace="system"))
    report = read_usage(asked)
    note = "usage of namespace {} is not counted yet"
    assert note.format("team-d") in report.notes
    assert (note.format("team-b") in report.notes) is not bool(others)
    assert not any("other" in one or "system" in one for one in report.notes)
    assert report.lack == " that are counted"
    client.on("list", NAMESPACES, forbid)
    assert "which namespaces have opted in: no right to read" in read_usage(asked).notes


UNCOUNTED: dict[str, tuple[object, str]] = {
    "not counted yet": (
        {**ledger("team-d", {}), "status": {}},
        "note: usage of namespace team-d is not counted yet",
    ),
    "unreadable": (
        ledger("team-d", {"compute": {**account("1", "2"), "used": {"requests.cpu": "x"}}}),
        "note: the ledger of namespace team-d cannot be read: status.quotas",
    ),
    "just deleted": (TWO[0], "note: usage of namespace team-d is not counted yet"),
}


@pytest.mark.parametrize(("stored", "note"), UNCOUNTED.values(), ids=UNCOUNTED)
def test_of_a_namespace_that_has_opted_in_it_is_not_said_that_it_has_not(
    tmp_path: Path, stored: object, note: str
) -> None:
    done = run(tmp_path, [a_namespace("team-d"), stored], "-n", "team-d")
    assert done.stdout == "no deferred quotas that are counted\n"
    assert [one.startswith(note) for one in done.stderr.splitlines()] == [True]


def test_without_the_right_to_read_the_label_only_the_ledger_is_said_to_be_missing() -> None:
    asked, client = session()
    client.on("get", NAMESPACES, forbid)
    report = read_usage(asked, ["team-d"])
    assert report.notes == (
        "the labels of namespace team-d: no right to read",
        "namespace team-d has no ledger that counts",
    )
    assert report.lack == " that are counted"


def session(**given_options: Any) -> tuple[Session, ReactiveClient]:
    cluster = FakeCluster()
    cluster.load([(QUOTA_LEDGERS, TWO[0]), (LEASES, a_lease(""))])
    client = ReactiveClient(cluster)
    return Session(client, ExplainOptions(**given_options)), client


def test_watching_goes_on_when_the_cluster_answers_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, client = session()
    pauses = itertools.count()

    def unanswered(_call: Call, _proceed: Proceed) -> None:
        raise UnavailableError("connection refused")

    def sleep(_seconds: float) -> None:
        match next(pauses):
            case 0:
                client.on("list", "*", unanswered, times=2)
            case 3:
                raise KeyboardInterrupt

    watching = partial(watched, sleep=sleep)
    monkeypatch.setattr("webhook.cli.top.live_cluster", lambda *_: nullcontext(client))
    monkeypatch.setattr("webhook.cli.top.watched", watching)
    done = CliRunner().invoke(cli, ["top", "--watch"])
    assert done.stdout.count("NAMESPACE") == 2
    assert done.stderr.count("retrying: connection refused") == 1


def test_without_a_leader_the_figures_are_said_to_be_old() -> None:
    report = read_usage(session()[0])
    assert report.rows
    assert report.notes == (
        "no controller leads since 2026-06-01T00:00:00.000000Z: these figures are not renewed",
    )


def test_what_may_not_be_read_is_noted() -> None:
    asked, client = session()

    def refuse(call: Call, _proceed: Proceed) -> None:
        raise ForbiddenError(f"{call.kind.plural} is forbidden: no right")

    client.on("list", QUOTA_LEDGERS, refuse)
    report = read_usage(asked, ["team-b"])
    assert report.rows == ()
    assert "the ledger of team-b: no right to read" in report.notes


amounts = st.integers(0, 10**6).map(Quantity.of_nano)


@given(st.lists(amounts, max_size=3), amounts, st.integers(1, 40))
def test_a_bar_is_never_wider_than_it_is(parts: list[Quantity], hard: Quantity, width: int) -> None:
    found = bar_cells(parts, hard, width)
    assert sum(found) <= width
    assert all(count >= 0 for count in found)
    assert all((count > 0) <= (part.sign > 0) for count, part in zip(found, parts, strict=True))
    if hard.sign > 0 and sum(part.nano for part in parts) >= hard.nano + len(parts) * hard.nano:
        assert sum(found) == width


def a_snapshot_without_ledgers(*, is_deferred: bool = True) -> list[object]:
    labels = {"deferredquota.io/mode": "deferred"} if is_deferred else {}
    metadata = {"name": "team-a", "labels": labels}
    running = a_container(requests={"cpu": "3"})
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata},
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-b"}},
        a_quota("compute", hard={"requests.cpu": "4", "pods": "9"}),
        a_quota("compute", namespace="team-b", hard={"requests.cpu": "2"}),
        a_pod(running, name="web-1", namespace="team-a", uid="1", node="node-1"),
        a_pod(running, name="web-2", namespace="team-a", uid="2"),
    ]


def test_usage_is_counted_from_the_pods_where_a_snapshot_has_no_ledger(tmp_path: Path) -> None:
    done = run(tmp_path, a_snapshot_without_ledgers(), "-o", "json")
    (row,) = rows(done)
    assert (row["namespace"], row["resource"]) == ("team-a", "requests.cpu")
    assert (row["used"], row["pending"], row["hard"]) == ("3", "3", "4")
    assert "the snapshot has none: used is counted from its pods that have a node" in done.stderr


def test_where_no_namespace_has_opted_in_all_are_counted_as_if_they_had(tmp_path: Path) -> None:
    done = run(tmp_path, a_snapshot_without_ledgers(is_deferred=False), "-o", "json")
    assert [(one["namespace"], one["used"]) for one in rows(done)] == [
        ("team-a", "3"),
        ("team-b", "0"),
    ]
    assert "no namespace of the snapshot has opted in" in done.stderr


def test_a_namespace_beside_one_that_has_opted_in_is_not_counted_as_if_it_had(
    tmp_path: Path,
) -> None:
    done = run(tmp_path, a_snapshot_without_ledgers(), "-n", "team-b", "-o", "json")
    assert rows(done) == []
    assert "namespace team-b has not opted in" in done.stderr
    assert "no namespace of the snapshot" not in done.stderr


def test_a_namespace_without_deferred_quotas_has_opted_in_all_the_same(tmp_path: Path) -> None:
    objects = a_snapshot_without_ledgers()
    done = run(tmp_path, [objects[0], *objects[3:]], "-n", "team-a")
    assert "not opted in" not in done.stderr


def test_pods_that_a_snapshot_could_not_take_are_not_said_to_use_nothing(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    head = {"apiVersion": "deferredquota.io/v1alpha1", "kind": "SnapshotList", "format": 1}
    head |= {"taken": "2026-11-30T06:00:00Z", "unread": ["Pod.v1"]}
    path.write_text(json.dumps({**head, "items": a_snapshot_without_ledgers()[:4]}), "utf-8")
    done = CliRunner().invoke(cli, ["top", "--snapshot", str(path)])
    assert done.stdout == "no deferred quotas: the snapshot lacks ledgers\n"
    assert "the pods of namespace team-a: not in the snapshot" in done.stderr


def test_a_snapshot_without_pods_is_not_one_in_which_nothing_is_used(tmp_path: Path) -> None:
    done = run(tmp_path, a_snapshot_without_ledgers()[:4])
    assert done.stdout == "no deferred quotas: the snapshot lacks ledgers\n"
    assert "neither quota ledgers nor pods (kubectl get ql,pods -A -o yaml)" in done.stderr


@pytest.mark.parametrize(("quotas", "reason"), out_of_bounds().values(), ids=out_of_bounds())
def test_quotas_for_which_nothing_is_bound_are_noted(
    tmp_path: Path, quotas: list[object], reason: str
) -> None:
    objects = a_snapshot_without_ledgers()
    done = run(tmp_path, [*objects, *quotas], "-o", "json")
    assert f"nothing is bound in namespace team-a: {reason}" in done.stderr
    assert len({one["quota"] for one in rows(done)}) == (1 if "wide" in reason else 128)
