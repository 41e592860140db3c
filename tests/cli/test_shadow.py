"""`deferred-quota shadow`, and `enable --shadow`."""

from __future__ import annotations

import copy
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from tests.cli.clusters import kubeconfig_of
from tests.cli.many import IMPATIENT, a_cluster_with_a_candidate, opting
from tests.operations.healthy import a_controller
from tests.operations.scenes import NAMESPACE, a_cluster, a_namespace, labels_of, record
from webhook.cli import ExitCode, cli
from webhook.fakecluster.storage import FakeClient, FakeCluster
from webhook.state.well_known import MODE_LABEL, SHADOW_MODE

NANO = 10**9
DAY = 24 * 3_600_000
RECORD: dict[str, Any] = {
    "since": "2026-05-04T08:00:00Z",
    "until": "2026-05-05T08:00:00Z",
    "counts": {
        "attempts": 17, "stored": 5, "refused": 11, "wouldRun": 4, "wouldWait": 5,
        "neverFits": 1, "stillRefused": 1, "unexplained": 1,
        "created": 5, "bound": 3, "boundOver": 1,
    },
    "workloads": [
        {
            "name": name,
            "attempts": attempts,
            "fate": fate,
            "first": "2026-05-04T08:00:00Z",
            "last": "2026-05-04T08:30:00Z",
        }
        for name, attempts, fate in (
            ("ReplicaSet/web-5d7", 4, "wouldRun"), ("ReplicaSet/web-5d7", 2, "wouldWait"),
            ("Job/train", 1, "wouldWait"), ("Pod/a", 1, "wouldWait"), ("Pod/b", 1, "wouldWait"),
            ("Pod/c", 1, "neverFits"), ("Pod/d", 1, "stillRefused"),
        )
    ],
    "quotas": [
        {
            "name": "compute",
            "observed": {"uid": "u", "specHash": "h"},
            "since": "2026-05-04T08:00:00Z",
            "milliseconds": DAY,
            "resources": {
                "requests.cpu": {
                    "hard": "4", "charged": "4", "assigned": "2",
                    "chargedPeak": "4", "assignedPeak": "3",
                    "chargedArea": str(3 * NANO * DAY), "assignedArea": str(NANO * DAY),
                    "fullMilliseconds": DAY // 2, "fullArea": str(NANO * DAY // 2),
                },
                "requests.memory": {
                    "hard": "8Gi", "charged": "1Gi", "assigned": "1Gi",
                    "chargedPeak": "1Gi", "assignedPeak": "1Gi",
                    "chargedArea": str(2**30 * NANO * DAY),
                    "assignedArea": str(2**30 * NANO * DAY),
                },
            },
        }
    ],
    "examples": {
        "refused": "exceeded quota: compute, requested: requests.cpu=1, used: requests.cpu=4,"
        " limited: requests.cpu=4",
        "boundOver": "web-9: exceeded quota: compute",
    },
}  # fmt: skip
TEXT = """\
team-a: in shadow mode, since 2026-05-04T08:00:00Z, last written 2026-05-05T08:00:00Z, \
watched for 1 d 0 h
QUOTA    RESOURCE         HARD  CHARGED   AVERAGE  PEAK  ASSIGNED   AVERAGE  PEAK  FULL
compute  requests.cpu        4        4    3 75 %     4         2    1 25 %     3  50 %
compute  requests.memory   8Gi      1Gi  1Gi 13 %   1Gi       1Gi  1Gi 13 %   1Gi   0 %
creations of pods: 17, of which stored 5, denied by quota 11, failed for another reason 1
  4 of the 11 denied, by 1 workload: would be admitted, and quota would be free for them at once
  5 of the 11 denied, by 4 workloads: would be admitted, and wait for quota
  1 of the 11 denied, by 1 workload: would be admitted, and wait forever: larger than a quota
  1 of the 11 denied, by 1 workload: would be denied, too
  denied workloads: ReplicaSet/web-5d7 (6 attempts), Job/train (1 attempt), Pod/a (1 attempt), \
Pod/b (1 attempt), Pod/c (1 attempt), 1 more
  last denial: exceeded quota: compute, requested: requests.cpu=1, used: requests.cpu=4, \
limited: requests.cpu=4
pods that were stored: 5 created, 3 got a node, 0 grew
  1 of those bound were above quota: they would have waited, or been denied
    last: web-9: exceeded quota: compute
=> quota compute was full for 12 h 0 m while 25 % of requests.cpu was really assigned
=> some pods are larger than a quota: they are denied now and would wait forever; make them \
smaller, or the quota larger
=> a quota was exceeded 1 time: such pods would wait, or be denied; was a quota lowered, or \
created after its pods?
=> opting in pays: pods of 4 workloads that quota denies (9 attempts) would have been admitted, \
and 4 of these attempts found quota free
"""


def watched() -> FakeCluster:
    cluster = a_cluster(a_namespace(mode="shadow"), a_namespace("plain", ""))
    record(FakeClient(cluster), RECORD)
    return cluster


def run(cluster: FakeCluster, directory: Path, *args: str) -> Result:
    with kubeconfig_of(cluster, directory) as kubeconfig:
        return CliRunner().invoke(cli, ["shadow", *args, "--kubeconfig", str(kubeconfig)])


def test_people_read_a_table_and_sentences(tmp_path: Path) -> None:
    result = run(watched(), tmp_path, "report")
    assert result.exit_code == ExitCode.OK
    assert result.stdout == TEXT


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_programs_get_all_of_it(tmp_path: Path, output: str) -> None:
    result = run(watched(), tmp_path, "report", NAMESPACE, "-o", output)
    found: Any = yaml.safe_load(result.stdout)
    assert found["schemaVersion"] == 1
    (entry,) = found["namespaces"]
    assert (entry["namespace"], entry["mode"]) == (NAMESPACE, "shadow")
    assert entry["creations"]["wouldWait"] == 5
    assert entry["creations"]["unjudged"] == 0
    assert entry["pods"]["boundOver"] == 1
    (quota,) = entry["quotas"]
    assert quota["seconds"] == 86400
    assert quota["resources"]["requests.cpu"] == {
        "hard": "4",
        "charged": {"now": "4", "average": "3", "peak": "4"},
        "assigned": {"now": "2", "average": "1", "peak": "3"},
        "fullSeconds": 43200,
        "assignedWhileFull": "1",
    }
    assert quota["resources"]["requests.memory"]["charged"]["average"] == "1Gi"
    assert len(entry["advice"]) == 4
    assert (entry["watchedSeconds"], entry["tooEarly"]) == (86400, False)


def test_a_namespace_without_record_is_named(tmp_path: Path) -> None:
    result = run(watched(), tmp_path, "report", "plain", "missing")
    assert result.exit_code == ExitCode.FINDINGS
    assert "plain: nothing is recorded\n" in result.stdout
    assert "missing: there is no such namespace\n" in result.stdout


def test_where_nothing_is_watched_the_way_is_shown(tmp_path: Path) -> None:
    result = run(a_cluster(a_namespace(mode="")), tmp_path, "report")
    assert result.exit_code == ExitCode.OK
    assert "deferred-quota enable --shadow NAMESPACE" in result.stdout


def test_a_record_that_says_nothing_is_advice_too(tmp_path: Path) -> None:
    cluster = a_cluster(a_namespace(mode="deferred"))
    record(FakeClient(cluster), {"since": SINCE, "until": "2026-05-05T08:00:00Z"})
    result = run(cluster, tmp_path, "report")
    assert f"team-a: was in shadow mode, defers now, since {SINCE}" in result.stdout
    assert "=> opting in would have changed nothing that was seen here\n" in result.stdout


def test_a_quota_that_was_full_for_less_than_a_second_is_no_news(tmp_path: Path) -> None:
    seen = copy.deepcopy(RECORD)
    seen["quotas"][0]["resources"]["requests.cpu"] |= {
        "fullMilliseconds": 999,
        "fullArea": str(NANO * 999),
    }
    cluster = a_cluster(a_namespace(mode="shadow"))
    record(FakeClient(cluster), seen)
    assert "was full for" not in run(cluster, tmp_path, "report").stdout


SINCE = "2026-05-04T08:00:00Z"
EARLY = (
    "=> too early for a conclusion: watched for {}{}; look again after at least a day, which has"
    " a night and most scheduled jobs"
)
LATE = " (creations are added some 15 s late)"
WATCHED = {
    "seconds": ("2026-05-04T08:00:40Z", "40 s", LATE),
    "a minute": ("2026-05-04T08:01:00Z", "1 m 0 s", ""),
    "nearly a day": ("2026-05-05T07:59:59Z", "23 h 59 m", ""),
    "nobody knows how long": ("soon", "0 s", LATE),
    "backwards": ("2026-05-04T07:00:00Z", "0 s", LATE),
}


@pytest.mark.parametrize(("until", "time", "late"), WATCHED.values(), ids=WATCHED)
def test_before_a_day_it_is_too_early(tmp_path: Path, until: str, time: str, late: str) -> None:
    cluster = a_cluster(a_namespace(mode="shadow"))
    record(FakeClient(cluster), {"since": SINCE, "until": until})
    head, *_, early, conclusion = run(cluster, tmp_path, "report").stdout.splitlines()
    assert head.endswith(f", last written {until}, watched for {time}")
    assert early == EARLY.format(time, late)
    assert conclusion == "=> so far opting in would have changed nothing that was seen here"


def test_what_counts_is_for_how_long_quotas_were_watched(tmp_path: Path) -> None:
    """While no controller led, nobody saw anything."""
    (quota,) = RECORD["quotas"]
    cluster = a_cluster(a_namespace(mode="shadow"))
    record(FakeClient(cluster), {**RECORD, "quotas": [{**quota, "milliseconds": 90_000}]})
    lines = run(cluster, tmp_path, "report").stdout.splitlines()
    assert lines[0].endswith("watched for 1 m 30 s")
    assert EARLY.format("1 m 30 s", "") in lines
    assert lines[-1].startswith("=> so far opting in pays: pods of 4 workloads")
    found: Any = yaml.safe_load(run(cluster, tmp_path, "report", "-o", "json").stdout)
    (entry,) = found["namespaces"]
    assert (entry["watchedSeconds"], entry["tooEarly"]) == (90, True)


UNSEEN = {
    "none yet": ({"created": 3}, "  3 pods more came: "),
    "some": ({"created": 3, "stored": 2, "refused": 4, "attempts": 6}, "  1 pod more came: "),
    "not found out": ({"created": 3, "stored": 2, "unexplained": 1, "attempts": 3}, None),
    "seen before the controller began": ({"created": 1, "stored": 2, "attempts": 2}, None),
}


@pytest.mark.parametrize(("counts", "told"), UNSEEN.values(), ids=UNSEEN)
def test_pods_whose_creation_is_not_added_are_reported(
    tmp_path: Path, counts: dict[str, int], told: str | None
) -> None:
    cluster = a_cluster(a_namespace(mode="shadow"))
    record(FakeClient(cluster), {"since": SINCE, "until": SINCE, "counts": counts})
    lines = run(cluster, tmp_path, "report").stdout.splitlines()
    rest = "no webhook has added the creation yet, or none was there to see it"
    assert [one for one in lines if "more came" in one] == ([told + rest] if told else [])


def test_a_snapshot_can_be_reported_on(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    ledger = {
        "apiVersion": "deferredquota.io/v1alpha1",
        "kind": "QuotaLedger",
        "metadata": {"name": "ledger", "namespace": NAMESPACE},
        "status": {"shadow": RECORD},
    }
    path.write_text(yaml.safe_dump_all([a_namespace(mode="shadow"), ledger]), encoding="utf-8")
    result = CliRunner().invoke(cli, ["shadow", "report", "--snapshot", str(path)])
    assert result.exit_code == ExitCode.OK, result.output
    assert result.stdout == TEXT


def test_a_record_can_be_taken_away(tmp_path: Path) -> None:
    cluster = watched()
    done = run(cluster, tmp_path, "reset", NAMESPACE)
    assert (done.exit_code, done.stdout) == (ExitCode.OK, "team-a: record deleted\n")
    again = run(cluster, tmp_path, "reset", NAMESPACE)
    assert (again.exit_code, again.stdout) == (
        ExitCode.FINDINGS,
        "team-a: nothing is recorded\n",
    )
    nowhere = run(cluster, tmp_path, "reset", "nosuch")
    assert (nowhere.exit_code, nowhere.stdout) == (
        ExitCode.FINDINGS,
        "nosuch: there is no such namespace\n",
    )


# -- beginning ---------------------------------------------------------------------------------


watching = partial(opting, mode=SHADOW_MODE)


def test_watching_begins_and_is_seen_to_have(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = a_cluster_with_a_candidate()
    with a_controller(cluster):
        code = watching(cluster).run(["team-b"], dry_run=False, force=False, output="text")
        first = capsys.readouterr()
        again = watching(cluster).run(["team-b"], dry_run=False, force=False, output="json")
        second: Any = json.loads(capsys.readouterr().out)
    assert (code, again) == (ExitCode.OK, ExitCode.OK)
    assert first.out.endswith("team-b: in shadow mode\n")
    assert second["mode"] == "shadow"
    assert second["namespaces"][0]["wasWatched"] is True
    assert labels_of(FakeClient(cluster), "team-b")[MODE_LABEL] == "shadow"


def test_a_dry_run_changes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = a_cluster_with_a_candidate()
    code = watching(cluster).run(["team-b"], dry_run=True, force=False, output="text")
    assert code == ExitCode.OK
    assert capsys.readouterr().out.endswith("team-b: would be watched\n")
    assert MODE_LABEL not in labels_of(FakeClient(cluster), "team-b")


def test_what_defers_is_not_watched_instead(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = a_cluster_with_a_candidate()
    api = FakeClient(cluster)
    code = watching(cluster).run([NAMESPACE], dry_run=False, force=False, output="text")
    told = capsys.readouterr()
    assert code == ExitCode.FINDINGS
    assert "[shadow.deferred]" in told.err
    assert labels_of(api)[MODE_LABEL] == "deferred"


def test_without_controller_nothing_is_watched_yet(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = a_cluster_with_a_candidate()
    code = watching(cluster, IMPATIENT).run(["team-b"], dry_run=False, force=False, output="text")
    assert code == ExitCode.DRIFT
    told = capsys.readouterr()
    assert "in shadow mode, but not watched yet" in told.out
    assert "team-b: nothing is recorded" in told.err
