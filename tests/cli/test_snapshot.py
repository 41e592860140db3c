"""`deferred-quota snapshot`: what is in the file, what is not, and how it is read again."""

from __future__ import annotations

import errno
import gzip
import json
import os
import resource
import stat
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import click
import pytest
from click.testing import CliRunner, Result

from tests.builders import a_container, a_job, a_pod
from tests.operations.healthy import a_lease, healthy
from tests.operations.scenes import NAMESPACE, load
from tests.reactions import Call, Proceed, ReactiveClient
from webhook.cli import ExitCode, cli
from webhook.cli.exit_codes import InputError
from webhook.cli.files.snapshot import write_snapshot
from webhook.cli.options import Session as CommandSession
from webhook.cli.options import keep
from webhook.kube.api import LEASES, NAMESPACES, NODES, ForbiddenError, Kind
from webhook.kube.files import snapshot_format
from webhook.kube.files.snapshot_format import FORMAT, SnapshotExtent
from webhook.operations.explain.entry import explanation_entry
from webhook.operations.explain.explaining import KINDS, Target, explain
from webhook.operations.explain.session import ExplainOptions, Session
from webhook.operations.names import VALIDATING_POLICIES, policy_kinds
from webhook.operations.snapshots.redaction import redacted
from webhook.operations.snapshots.taking import take_snapshot
from webhook.state.well_known import DEFAULT_NAMESPACE

SECRET = "hunter2"  # noqa: S105 - it is looked for


def a_secretive_pod(name: str = "large", cpu: str = "4") -> dict[str, Any]:
    """Return a gated pod with a secret in every field that may hold one."""
    container = {
        **a_container(requests={"cpu": cpu}),
        "command": [SECRET],
        "args": [SECRET],
        "env": [{"name": "PASSWORD", "value": SECRET}],
        "envFrom": [{"secretRef": {"name": SECRET}}],
        "volumeMounts": [{"name": "v", "mountPath": SECRET}],
        "livenessProbe": {"exec": {"command": [SECRET]}},
    }
    made = a_pod(name=name, namespace=NAMESPACE)
    made["metadata"] = {
        "name": name,
        "namespace": NAMESPACE,
        "uid": name,
        "labels": {"app": "web"},
        "annotations": {"example.com/token": SECRET, "deferredquota.io/requeued": "1"},
        "managedFields": [{"manager": SECRET}],
    }
    made["spec"] = {
        "containers": [container],
        "initContainers": [{**container, "name": "init"}],
        "volumes": [
            {"name": "v", "secret": {"secretName": SECRET}},
            {"name": "w", "persistentVolumeClaim": {"claimName": "data"}},
        ],
        "imagePullSecrets": [{"name": SECRET}],
        "serviceAccountName": SECRET,
        "hostAliases": [{"ip": "127.0.0.1", "hostnames": [SECRET]}],
        "schedulingGates": [{"name": "deferredquota.io/quota"}],
        "tolerations": [{"operator": "Exists"}],
        "aFieldOfALaterRelease": SECRET,
    }
    return made


@pytest.mark.parametrize("kind", ["Pod", "Job", "CronJob", "Deployment", "StatefulSet"])
def test_what_may_be_secret_is_left_out_of_every_kind(kind: str) -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", **a_secretive_pod()}
    template = {"metadata": pod["metadata"], "spec": pod["spec"]}
    spec: dict[str, Any] = {"template": template, "replicas": 2}
    if kind == "CronJob":
        spec = {"jobTemplate": {"metadata": pod["metadata"], "spec": spec}, "schedule": "* * * * *"}
    raw = pod if kind == "Pod" else {"kind": kind, "metadata": pod["metadata"], "spec": spec}
    before = json.dumps(raw)
    kept = redacted(raw)
    assert SECRET not in json.dumps(kept)
    assert json.dumps(raw) == before
    inner: Any = kept["spec"]
    if kind == "CronJob":
        inner = inner["jobTemplate"]["spec"]
    if kind != "Pod":
        assert inner["replicas"] == 2
        inner = inner["template"]["spec"]
    assert inner["containers"][0]["resources"] == {"requests": {"cpu": "4"}}
    assert inner["volumes"][1]["persistentVolumeClaim"] == {"claimName": "data"}
    assert [one["name"] for one in inner["schedulingGates"]] == ["deferredquota.io/quota"]
    assert kept["metadata"] == {
        "name": "large",
        "namespace": NAMESPACE,
        "uid": "large",
        "labels": {"app": "web"},
        "annotations": {"deferredquota.io/requeued": "1"},
    }


def test_what_a_container_wrote_and_annotations_of_its_claims_are_left_out() -> None:
    ended = {"terminated": {"message": SECRET, "exitCode": 1}}
    claim = {"metadata": {"annotations": {"example.com/token": SECRET}}, "spec": {"a": SECRET}}
    kept: Any = redacted(
        {
            "kind": "Pod",
            "metadata": {},
            "spec": {"volumes": [{"name": "v", "ephemeral": {"volumeClaimTemplate": claim}}]},
            "status": {
                "phase": "Running",
                "containerStatuses": [{"name": "c", "state": ended, "lastState": ended}],
                "initContainerStatuses": [{"name": "i", "lastState": ended}],
            },
        }
    )
    assert SECRET not in json.dumps(kept)
    assert kept["status"]["phase"] == "Running"
    assert kept["status"]["containerStatuses"][0]["state"] == {"terminated": {"exitCode": 1}}
    assert "ephemeral" in kept["spec"]["volumes"][0]


def test_what_a_kubelet_quotes_is_left_out_and_what_is_said_of_images_stays() -> None:
    failed = {"waiting": {"reason": "RunContainerError", "message": f'exec: "--key={SECRET}"'}}
    pulled = {"waiting": {"reason": "ErrImagePull", "message": "example.com/i: not found"}}
    mounted = {"volumeMounts": [{"name": "v", "mountPath": SECRET}], "user": {"linux": SECRET}}
    kept: Any = redacted(
        {
            "kind": "Pod",
            "metadata": {},
            "spec": {},
            "status": {
                "containerStatuses": [
                    {"name": "c", "state": failed, "lastState": failed, **mounted},
                    {"name": "d", "state": pulled, "resources": {"requests": {"cpu": "1"}}},
                ],
                "ephemeralContainerStatuses": [{"name": "e", "state": failed}],
            },
        }
    )
    assert SECRET not in json.dumps(kept)
    first, second = kept["status"]["containerStatuses"]
    assert first == {
        "name": "c",
        "state": {"waiting": {"reason": "RunContainerError"}},
        "lastState": {"waiting": {"reason": "RunContainerError"}},
    }
    assert second == {"name": "d", "state": pulled, "resources": {"requests": {"cpu": "1"}}}


@pytest.mark.parametrize(
    ("kind", "component", "is_kept"),
    [
        ("Pod", "kubelet", False),
        ("Pod", "default-scheduler", True),
        ("ReplicaSet", "replicaset-controller", True),
        ("Certificate", "cert-manager", False),
        ("ResourceQuota", "deferred-quota-controller", True),
    ],
)
@pytest.mark.parametrize("is_new", [False, True])
def test_messages_stay_of_events_that_are_read(
    kind: str, component: str, is_kept: bool, is_new: bool
) -> None:
    source = {"reportingComponent": component} if is_new else {"source": {"component": component}}
    event = {
        "kind": "Event",
        "metadata": {},
        "involvedObject": {"kind": kind, "name": "x"},
        "reason": "Unhealthy",
        "message": SECRET,
        **source,
    }
    kept = redacted(event)
    assert (SECRET in json.dumps(kept)) is is_kept
    assert kept["reason"] == "Unhealthy"


@pytest.mark.parametrize(
    "name",
    [
        "kubernetes.io/config.source",
        "pv.kubernetes.io/bind-completed",
        "volume.kubernetes.io/selected-node",
        "volume.beta.kubernetes.io/storage-class",
    ],
)
def test_an_annotation_that_decides_where_a_pod_fits_stays(name: str) -> None:
    raw = {"kind": "PersistentVolumeClaim", "metadata": {"annotations": {name: "yes"}}, "spec": {}}
    assert redacted(raw)["metadata"] == {"annotations": {name: "yes"}}


def session(*forbidden: Kind) -> Session:
    cluster = healthy()
    load(cluster, a_secretive_pod(), {**a_job(), "apiVersion": "batch/v1", "kind": "Job"})
    client = ReactiveClient(cluster)

    def refuse(call: Call, _proceed: Proceed) -> None:
        raise ForbiddenError(f"{call.kind.plural} is forbidden: no right")

    for kind in forbidden:
        client.on("list", kind, refuse)
    return Session(client, ExplainOptions())


def written(tmp_path: Path, name: str = "cluster.json", *forbidden: Kind) -> Path:
    path = tmp_path / name
    write_snapshot(session(*forbidden), str(path))
    return path


def explained(path: Path, *args: str) -> Result:
    command = ["explain", "pod", "large", "-n", NAMESPACE, "--snapshot", str(path), *args]
    return CliRunner().invoke(cli, command)


@pytest.mark.parametrize("name", ["cluster.json", "cluster.json.gz"])
def test_an_explanation_of_the_file_is_that_of_the_cluster(tmp_path: Path, name: str) -> None:
    path = written(tmp_path, name)
    assert path.read_bytes().startswith(b"\x1f\x8b") is name.endswith(".gz")
    asked = session()
    # whether a webhook answers is in no file
    options = ExplainOptions(is_offline=True, taken=asked.options.now())
    live = explanation_entry(explain(asked.api, Target(KINDS["pod"], NAMESPACE, "large"), options))
    offline = json.loads(explained(path, "-o", "json").stdout)
    for answer in (live, offline):
        answer.pop("asOf")
    assert offline == live
    assert offline["causes"]


def test_the_file_says_what_it_is(tmp_path: Path) -> None:
    document = json.loads(written(tmp_path).read_text(encoding="utf-8"))
    assert (document["kind"], document["format"], document["unread"]) == (
        "SnapshotList",
        FORMAT,
        [],
    )
    assert SECRET not in json.dumps(document)
    kinds = {one["kind"] for one in document["items"]}
    assert {"Namespace", "Pod", "ResourceQuota", "QuotaLedger", "Node", "Lease", "Job"} <= kinds
    assert "Secret" not in kinds
    registrations = [one for one in document["items"] if "WebhookConfiguration" in one["kind"]]
    assert registrations
    assert all("deferred-quota" in one["metadata"]["name"] for one in registrations)


def test_of_leases_only_those_are_taken_that_tell_the_time() -> None:
    asked = session()
    load(
        cast("ReactiveClient", asked.api).cluster,
        *(
            {**a_lease(), "metadata": {"name": place, "namespace": place}}
            for place in ("kube-node-lease", "kube-system", NAMESPACE)
        ),
    )
    taken = [one["metadata"] for one in take_snapshot(asked).items if one["kind"] == "Lease"]
    places = {cast("Any", one)["namespace"] for one in taken}
    assert places == {"kube-node-lease", "kube-system", DEFAULT_NAMESPACE}


def test_a_namespace_can_be_taken_alone(tmp_path: Path) -> None:
    path = tmp_path / "one.json"
    write_snapshot(session(), str(path), ("default",))
    items = json.loads(path.read_text(encoding="utf-8"))["items"]
    assert {one["kind"] for one in items} >= {"Namespace", "Node"}
    assert not any(one["kind"] == "Pod" for one in items)


def test_of_a_part_it_is_not_known_what_others_take(tmp_path: Path) -> None:
    path = tmp_path / "one.json"
    write_snapshot(session(), str(path), (NAMESPACE,))
    found = json.loads(explained(path, "-o", "json").stdout)
    assert any("pods of other namespaces" in one for one in found["unknown"])
    assert found["causes"]
    other = CliRunner().invoke(cli, ["explain", "pod", "x", "-n", "other", "--snapshot", str(path)])
    assert other.exit_code == ExitCode.FINDINGS
    assert "the snapshot does not have the pods of namespace other" in other.stderr


@pytest.mark.parametrize(
    ("extent", "kind", "namespace", "lacks"),
    [
        (SnapshotExtent(), "Pod.v1", "", False),
        (SnapshotExtent(frozenset({"Node.v1"})), "Node.v1", None, True),
        (SnapshotExtent(frozenset({"Pod.v1 in b"})), "Pod.v1", "a", False),
        (SnapshotExtent(frozenset({"Pod.v1 in b"})), "Pod.v1", "b", True),
        (SnapshotExtent(frozenset({"Pod.v1 in b"})), "Pod.v1", "", True),
        (SnapshotExtent(namespaces=frozenset({"a"})), "Pod.v1", "a", False),
        (SnapshotExtent(namespaces=frozenset({"a"})), "Pod.v1", "b", True),
        (SnapshotExtent(namespaces=frozenset({"a"})), "Pod.v1", "", True),
        (SnapshotExtent(namespaces=frozenset({"a"})), "Node.v1", None, False),
    ],
)
def test_what_a_snapshot_may_lack(
    extent: SnapshotExtent, kind: str, namespace: str | None, lacks: bool
) -> None:
    assert extent.lacks(kind, namespace) is lacks


def test_what_could_not_be_read_is_said_by_the_file_and_by_answers_from_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, "cluster.json", NODES)
    assert "note: nodes: no right to read; it is not in the snapshot" in capsys.readouterr().err
    assert json.loads(path.read_text(encoding="utf-8"))["unread"] == ["Node.v1"]
    unknown = json.loads(explained(path, "-o", "json").stdout)["unknown"]
    assert "nodes: not in the snapshot" in unknown


def test_a_snapshot_of_a_user_without_the_right_to_list_leases_is_explained(tmp_path: Path) -> None:
    done = explained(written(tmp_path, "cluster.json", LEASES), "-o", "json")
    found = json.loads(done.stdout)
    assert found["causes"]
    assert "the snapshot has no Lease of the controller" in found["unknown"]


def test_a_tenant_that_may_list_no_namespaces_takes_its_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    write_snapshot(session(NAMESPACES), str(path), (NAMESPACE,))
    found = json.loads(explained(path, "-o", "json").stdout)
    assert not any("labels of namespace" in one for one in found["unknown"])


def examined(path: Path) -> Any:
    done = CliRunner().invoke(cli, ["doctor", "--snapshot", str(path), "-o", "json"])
    return json.loads(done.stdout)


def test_doctor_finds_in_the_file_what_it_finds_in_the_cluster(tmp_path: Path) -> None:
    found = examined(written(tmp_path))
    assert {one["id"] for one in found["findings"]} == {"control-plane.limited-resources"}
    assert {"crd", "creation", "mask", "identities", "managers"} <= set(found["checked"])


@pytest.mark.parametrize("kinds", [policy_kinds("v1"), (VALIDATING_POLICIES, NODES, LEASES)])
def test_doctor_has_no_findings_about_what_a_user_might_not_read(
    tmp_path: Path, kinds: tuple[Kind, ...]
) -> None:
    found = examined(written(tmp_path, "cluster.json", *kinds))
    assert {one["id"] for one in found["findings"]} <= {"control-plane.limited-resources"}
    assert found["skipped"]


def _newer(data: bytes) -> bytes:
    return data.replace(b'"format":1', b'"format":2')


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_newer, "format: is 2, of a newer release: this one reads up to 1"),
        (lambda data: data.replace(b'"format":1', b'"format":"x"'), "format: must be a whole"),
        (lambda data: data.replace(b'"unread":[]', b'"unread":7'), "unread: must be a list"),
        (lambda data: data.replace(b'"taken":"', b'"taken":"at '), "taken: "),
        (
            lambda data: data.replace(b"deferredquota.io/v1alpha1", b"deferredquota.io/v1", 1),
            "apiVersion: is 'deferredquota.io/v1', of another release",
        ),
        (lambda _: b"", "is empty: not what a command prints"),
        (lambda _: gzip.compress(b"---\n"), "is empty: not what a command prints"),
        (lambda data: data[: len(data) // 2], "cluster.json: document 1, line"),
        (lambda data: gzip.compress(data)[:-20], "invalid gzip file"),
    ],
)
def test_a_file_that_cannot_be_understood_is_refused(
    tmp_path: Path, change: Callable[[bytes], bytes], words: str
) -> None:
    path = written(tmp_path)
    path.write_bytes(change(path.read_bytes()))
    done = explained(path)
    assert done.exit_code == ExitCode.BAD_INPUT
    assert words in done.stderr


def test_a_gzip_file_is_unpacked_up_to_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path)
    data = path.read_bytes()
    monkeypatch.setattr(snapshot_format, "MAX_UNPACKED_BYTES", len(data))
    half = len(data) // 2
    path.write_bytes(gzip.compress(data[:half]) + gzip.compress(data[half:]) + b"\0" * 8)
    assert explained(path).exit_code == ExitCode.OK
    path.write_bytes(gzip.compress(data) + gzip.compress(b"\n"))
    done = explained(path)
    assert done.exit_code == ExitCode.BAD_INPUT
    assert f"{path}: unpacks to more than {len(data) >> 20} MiB" in done.stderr
    assert "unpack it with gunzip" in done.stderr


@pytest.mark.parametrize(
    ("name", "code"),
    [("large", ExitCode.OK), ("missing", ExitCode.FINDINGS)],
    ids=["there", "gone"],
)
def test_a_process_that_keeps_the_snapshot_ends_with_its_output_and_status(
    tmp_path: Path, name: str, code: ExitCode
) -> None:
    path = written(tmp_path)
    command = ["explain", "pod", name, "-n", NAMESPACE, "--snapshot", str(path)]
    within = CliRunner().invoke(cli, command)
    done = subprocess.run(
        [sys.executable, "-m", "webhook", *command], capture_output=True, text=True, check=False
    )
    assert (done.returncode, within.exit_code) == (code, code)
    assert (done.stdout, done.stderr) == (within.stdout, within.stderr)


@pytest.mark.parametrize("session", [CommandSession(), None], ids=["within", "no session"])
def test_nothing_is_kept_where_the_process_goes_on(session: CommandSession | None) -> None:
    with click.Context(click.Command("x"), obj=session):
        keep(object())
    assert session is None or session.kept is None


@pytest.mark.parametrize(
    ("name", "words"), [("nowhere/cluster.json", "No such file"), (".", "Is a directory")]
)
def test_a_file_that_cannot_be_written_is_named_before_anything_is_read(
    tmp_path: Path, name: str, words: str
) -> None:
    client = ReactiveClient(healthy())
    calls: list[Call] = []
    client.on("list", NODES, lambda call, _proceed: calls.append(call))
    with pytest.raises(InputError, match=words):
        write_snapshot(Session(client, ExplainOptions()), str(tmp_path / name))
    assert not calls


def test_what_a_write_that_fails_would_have_replaced_stays(tmp_path: Path) -> None:
    path = tmp_path / "cluster.json"
    path.write_text("former", encoding="utf-8")
    most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, most[1]))
    try:
        with pytest.raises(InputError, match="File too large"):
            write_snapshot(session(), str(path))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, most)
    assert path.read_text(encoding="utf-8") == "former"
    assert list(tmp_path.iterdir()) == [path]


def test_an_interrupted_write_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_descriptor: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_snapshot(session(), str(tmp_path / "cluster.json"))
    assert not list(tmp_path.iterdir())


def test_a_file_that_is_replaced_keeps_its_mode_and_links_to_it_stay(tmp_path: Path) -> None:
    path, link = tmp_path / "cluster.json", tmp_path / "link.json"
    path.touch(mode=0o640)
    path.chmod(0o640)
    link.symlink_to(path)
    write_snapshot(session(), str(link))
    assert link.is_symlink()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert json.loads(path.read_bytes())["kind"] == "SnapshotList"


def test_a_file_of_another_user_stays_theirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path)
    node = path.stat().st_ino
    monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)
    assert written(tmp_path).stat().st_ino == node
    monkeypatch.undo()
    assert written(tmp_path).stat().st_ino != node


def test_a_pipe_and_a_file_that_is_a_mount_are_written_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(*_paths: Path) -> None:
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))

    monkeypatch.setattr(Path, "replace", busy)
    assert json.loads(written(tmp_path).read_bytes())["kind"] == "SnapshotList"
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor() as pool:
        received = pool.submit(pipe.read_bytes)
        write_snapshot(session(), str(pipe))
        assert json.loads(received.result())["kind"] == "SnapshotList"
    assert pipe.is_fifo()


def test_the_fake_cluster_reads_it_too(tmp_path: Path) -> None:
    done = CliRunner().invoke(
        cli, ["enable", NAMESPACE, "--dry-run", "--snapshot", str(written(tmp_path))]
    )
    assert NAMESPACE in done.output
