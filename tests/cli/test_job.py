"""`deferred-quota job resize`."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import pytest
import yaml
from click.testing import CliRunner, Result

from tests.builders import a_container
from tests.cli.clusters import kubeconfig_of, write_kubeconfig
from tests.kube.rest.served import served
from tests.operations.jobs import NEW, OLD, World, a_pod_of_the_job, a_sample, an_order, wanted
from tests.operations.scenes import NAMESPACE
from tests.reactions import fail, in_turn, preceded_by, unreachable
from webhook.cli import ExitCode, cli
from webhook.cli.exit_codes import CommandError
from webhook.cli.job import resize_on, rules_for, wanted_of
from webhook.cli.printing.job_report import interruptible
from webhook.fakecluster.rest.apiserver import ApiServer
from webhook.kube.api import CONFIG_MAPS, JOBS, PODS, ClusterApi, ForbiddenError
from webhook.operations.jobs.usage import POD_METRICS, NoUsageError
from webhook.quota.amounts.resources import to_text
from webhook.quota.jobs.policy import REPLACED_BESIDE

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

SMALLER = ("--requests", "cpu=2,memory=4Gi")
FIELD = "spec.template.spec.containers[0].resources (main)"


def run(world: World, directory: Path, *args: str) -> Result:
    with kubeconfig_of(world.cluster, directory) as kubeconfig:
        access = ("--kubeconfig", str(kubeconfig), "-n", NAMESPACE)
        return CliRunner().invoke(cli, ["job", "resize", "train", *access, *args])


def resized(world: World, api: ClusterApi | None = None, output: str = "text") -> ExitCode:
    return resize_on(api or world.api, an_order(), world.patience(), output=output)


def test_a_running_job_is_resized(capsys: pytest.CaptureFixture[str]) -> None:
    world = World()
    assert resized(world) == ExitCode.OK
    told = capsys.readouterr()
    assert told.out == (
        "job team-a/train: resized\n"
        f"  {FIELD}: requests.cpu from 4 to 2, requests.memory set to 4Gi\n"
        "  it was suspended, and is resumed: new pods have the new resources\n"
    )
    assert told.err == ""
    assert world.is_new


def test_a_suspended_job_is_resized_over_http_and_stays_so(tmp_path: Path) -> None:
    world = World(runs=False)
    result = run(world, tmp_path, *SMALLER)
    assert result.exit_code == ExitCode.OK, result.output
    assert "it is suspended: pods have the new resources when it is resumed" in result.stdout
    assert (world.spec["suspend"], world.resources) == (True, NEW)
    again = run(world, tmp_path, *SMALLER)
    assert again.exit_code == ExitCode.OK
    assert again.stdout == "job team-a/train: has these resources already, nothing to do\n"


def test_a_dry_run_prints_the_plan_and_changes_nothing(tmp_path: Path) -> None:
    world = World(podReplacementPolicy="TerminatingOrFailed")
    before = world.cluster.resource_version
    result = run(world, tmp_path, *SMALLER, "--dry-run")
    assert result.exit_code == ExitCode.OK, result.output
    lines = result.stdout.splitlines()
    assert lines[:4] == [
        "job team-a/train: would be resized",
        f"  {FIELD}: requests.cpu from 4 to 2, requests.memory set to 4Gi",
        "  is suspended first: 3 active pods end, and what is not saved is lost",
        "  when status.active is 0 the resources change, and it is resumed in the same write",
    ]
    assert lines[4].startswith("  checked: the API server accepts the suspension.")
    assert result.stderr.startswith(
        "Warning: job team-a/train: spec.podReplacementPolicy: is not Failed:"
    )
    assert world.cluster.resource_version == before


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_programs_get_all_of_it(tmp_path: Path, output: str) -> None:
    result = run(World(runs=False), tmp_path, *SMALLER, "--dry-run", "-o", output)
    found: Any = json.loads(result.stdout) if output == "json" else yaml.safe_load(result.stdout)
    assert found == {
        "schemaVersion": 1,
        "dryRun": True,
        "namespace": "team-a",
        "name": "train",
        "changes": [
            {
                "container": "main",
                "field": "spec.template.spec.containers[0].resources",
                "amounts": {
                    "requests.cpu": {"old": "4", "new": "2"},
                    "requests.memory": {"old": None, "new": "4Gi"},
                },
            }
        ],
        "wasSuspended": True,
        "suspended": False,
        "resumed": False,
        "warnings": [],
        "checked": "the API server accepts the change",
        "notChecked": [],
        "problems": [],
    }


def test_what_was_done_is_there_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    assert resized(World(), output="json") == ExitCode.OK
    found = json.loads(capsys.readouterr().out)
    assert (found["dryRun"], found["wasSuspended"]) == (False, False)
    assert (found["suspended"], found["resumed"], found["problems"]) == (True, True, [])


WRONG = {
    "no amount": ((), "give --requests, --limits or --from-usage"),
    "no name": (("--requests", "=2"), "'=2' is not NAME=QUANTITY"),
    "no quantity": (("--requests", "cpu=two"), "cpu: 'two' is not a quantity"),
    "an empty text": (("--limits", ""), "'' is not NAME=QUANTITY"),
    "a name twice": (("--requests", "cpu=1,cpu=2"), "cpu: is given twice"),
    "no percentile": (("--from-usage", "95"), "'95' is not p1 to p100"),
    "percentile 0": (("--from-usage", "p0"), "'p0' is not p1 to p100"),
    "a strange container": (
        (*SMALLER, "--container", "x"),
        "job team-a/train: spec.template.spec.containers: has no container 'x', it has main",
    ),
}


@pytest.mark.parametrize(("args", "words"), WRONG.values(), ids=WRONG.keys())
def test_wrong_usage_ends_with_2(tmp_path: Path, args: tuple[str, ...], words: str) -> None:
    world = World(runs=False)
    result = run(world, tmp_path, *args)
    assert result.exit_code == ExitCode.BAD_INPUT, result.output
    assert words in " ".join(result.stderr.split())
    assert world.resources == OLD


def test_which_of_several_containers_has_to_be_said(tmp_path: Path) -> None:
    template = {"spec": {"containers": [a_container(), a_container("side")]}}
    world = World(runs=False, template=template)
    result = run(world, tmp_path, *SMALLER)
    assert result.exit_code == ExitCode.BAD_INPUT
    assert "has main, side: choose one with --container" in result.stderr
    assert run(world, tmp_path, *SMALLER, "--container", "main").exit_code == ExitCode.OK
    assert world.resources == {"requests": {"cpu": "2", "memory": "4Gi"}}


def test_without_a_metrics_server_usage_is_not_guessed(tmp_path: Path) -> None:
    world = World()
    result = run(world, tmp_path, "--from-usage", "p95")
    assert result.exit_code == ExitCode.FINDINGS
    assert "has no pods that run" in result.stderr


def measured_world() -> World:
    """Two pods of `train`; of one there is a sample."""
    template = {"spec": {"containers": [a_container(), a_container("side")]}}
    world = World(template=template)
    pods = [(PODS, a_pod_of_the_job(name)) for name in ("a", "b")]
    sample = a_sample("a", main=("1500m", "3Gi"), side=("10m", "5Mi"), injected=("1", "1Gi"))
    world.cluster.load([*pods, (POD_METRICS, sample)])
    return world


MEASURED = {
    "all containers of the template": (
        {},
        None,
        {"main": {"cpu": "1500m", "memory": "3Gi"}, "side": {"cpu": "10m", "memory": "5Mi"}},
    ),
    "the one that is named": ({}, "side", {"side": {"cpu": "10m", "memory": "5Mi"}}),
    "given amounts go before": ({"cpu": "2"}, "main", {"main": {"cpu": "2", "memory": "3Gi"}}),
}


@pytest.mark.parametrize(
    ("requests", "container", "expected"), MEASURED.values(), ids=MEASURED.keys()
)
def test_usage_says_what_is_wanted(
    requests: dict[str, str],
    container: str | None,
    expected: dict[str, dict[str, str]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    place, explicit = (NAMESPACE, "train"), wanted(requests)
    found = wanted_of(measured_world().api, place, explicit, container, 95)
    assert {name: to_text(each.requests) for name, each in found.items()} == expected
    assert capsys.readouterr().err == (
        "job team-a/train: metrics.k8s.io has samples of 1 of 2 pods\n"
    )


def test_a_container_without_a_sample_is_not_guessed() -> None:
    with pytest.raises(NoUsageError, match="has no sample of 'late'"):
        wanted_of(measured_world().api, (NAMESPACE, "train"), wanted({}), "late", 95)


def test_a_refusal_names_the_field_and_ends_with_1(tmp_path: Path) -> None:
    result = run(World(), tmp_path, "--requests", "memory=9Gi")
    assert result.exit_code == ExitCode.FINDINGS
    assert result.stderr == (
        "Error: job team-a/train: spec.template.spec.containers[0].resources.requests: Invalid"
        ' value: "9Gi": must be less than or equal to memory limit of 8Gi\n'
    )


def test_a_job_that_is_not_there_ends_with_1(tmp_path: Path) -> None:
    world = World()
    with kubeconfig_of(world.cluster, tmp_path) as kubeconfig:
        arguments = ["job", "resize", "nope", "--kubeconfig", str(kubeconfig), *SMALLER]
        result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == ExitCode.FINDINGS
    assert 'jobs.batch "nope" not found' in result.stderr


def failing(error: BaseException) -> World:
    """A world in which the second write fails: the change."""
    world = World()
    world.api.on("patch", "*", in_turn([None, fail(error)]))
    return world


def test_a_failure_says_what_was_undone(capsys: pytest.CaptureFixture[str]) -> None:
    world = failing(ForbiddenError("not now"))
    assert resized(world) == ExitCode.FINDINGS
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err == (
        "Error: job team-a/train: changing its resources: not now\n"
        "undone: spec.suspend is false again, pods that have ended start anew\n"
    )
    assert world.is_old


def test_an_interruption_says_what_was_undone(capsys: pytest.CaptureFixture[str]) -> None:
    world = failing(KeyboardInterrupt())
    with pytest.raises(click.Abort):  # which ends with 130
        resized(world)
    assert "undone: spec.suspend is false again" in capsys.readouterr().err
    assert world.is_old


def test_a_fault_of_ours_is_undone_and_shown_as_such() -> None:
    world = failing(ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        resized(world)
    assert world.is_old


def test_an_outage_that_does_not_end_says_what_is_left(
    capsys: pytest.CaptureFixture[str],
) -> None:
    world = World()
    # there is no answer once the Job is suspended
    cut = preceded_by(lambda _: world.api.on("get", "*", unreachable))
    world.api.on("patch", JOBS, cut, times=1)
    assert resized(world) == ExitCode.UNREACHABLE
    assert "not undone: job team-a/train: spec.suspend may still be true" in capsys.readouterr().err


class Cautious(ApiServer):
    """Warns at every patch."""

    texts: tuple[str, ...] = ("careful", r"say \"no\"")

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        told = [("Warning", f'299 - "{text}"') for text in self.texts]
        more = told if environ["REQUEST_METHOD"] == "PATCH" else []

        def start(status: str, headers: list[tuple[str, str]], *rest: Any) -> Any:
            return start_response(status, [*headers, *more], *rest)

        return super().__call__(environ, start)


@pytest.mark.parametrize("output", ["text", "json"])
def test_what_the_cluster_warns_of_is_shown_once(tmp_path: Path, output: str) -> None:
    world = World(runs=False)
    with served(world.cluster, Cautious) as client:
        kubeconfig = write_kubeconfig(tmp_path, client.config.server)
        access = ("--kubeconfig", str(kubeconfig), "-n", NAMESPACE, "-o", output)
        arguments = ["job", "resize", "train", *access, *SMALLER]
        planned = CliRunner().invoke(cli, [*arguments, "--dry-run"])
        done = CliRunner().invoke(cli, arguments)
    for result in (planned, done):
        assert result.exit_code == ExitCode.OK, result.output
        assert result.stderr == 'Warning: careful\nWarning: say "no"\n'
        if output == "json":
            assert json.loads(result.stdout)["warnings"] == ["careful", 'say "no"']


class Registered(Cautious):
    """Warns as the webhook does."""

    texts = (REPLACED_BESIDE,)


@pytest.mark.parametrize("output", ["text", "json"])
def test_what_the_webhook_warns_of_is_not_said_in_other_words(tmp_path: Path, output: str) -> None:
    world = World(podReplacementPolicy="TerminatingOrFailed")
    with served(world.cluster, Registered) as client:
        kubeconfig = write_kubeconfig(tmp_path, client.config.server)
        access = ("--kubeconfig", str(kubeconfig), "-n", NAMESPACE, "-o", output)
        arguments = ["job", "resize", "train", *access, *SMALLER, "--dry-run"]
        result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == ExitCode.OK, result.output
    assert result.stderr == f"Warning: {REPLACED_BESIDE}\n"
    if output == "json":
        assert json.loads(result.stdout)["warnings"] == [REPLACED_BESIDE]


CONFIGURATION = "apiVersion: deferredquota.io/v1alpha1\nkind: Configuration\n"
MAY_NOT_SHRINK = f"{CONFIGURATION}jobs: [{{shrink: {{'*': Deny}}}}]\n"
SYSTEM = "deferred-quota-system"


def install(world: World, text: str) -> World:
    """Put a configuration where installations have it."""
    world.cluster.load([(CONFIG_MAPS, a_config_map("deferred-quota-config", SYSTEM, text))])
    return world


def a_config_map(name: str, namespace: str, text: str) -> dict[str, object]:
    metadata = {"name": name, "namespace": namespace}
    kind = {"apiVersion": "v1", "kind": "ConfigMap"}
    return {**kind, "metadata": metadata, "data": {"config.yaml": text}}


REFUSAL = (
    "Error: job team-a/train: spec.template.spec.containers[0].resources.requests.cpu: Forbidden:"
    " from 4 to 2: cpu of this Job may not shrink\n"
)


@pytest.mark.parametrize("args", [(), ("--dry-run",)])
def test_what_rules_of_the_cluster_refuse_ends_no_pod(
    tmp_path: Path, args: tuple[str, ...]
) -> None:
    world = install(World(), MAY_NOT_SHRINK)
    before = world.cluster.resource_version
    result = run(world, tmp_path, "--requests", "cpu=2", *args)
    assert (result.exit_code, result.stderr) == (ExitCode.FINDINGS, REFUSAL)
    assert world.cluster.resource_version == before


def test_rules_can_be_given_as_a_file(tmp_path: Path) -> None:
    world, path = World(), tmp_path / "config.yaml"
    path.write_text(MAY_NOT_SHRINK)
    result = run(world, tmp_path, "--requests", "cpu=2", "--config", str(path))
    assert (result.exit_code, result.stderr) == (ExitCode.FINDINGS, REFUSAL)


def test_a_file_that_cannot_be_used_ends_with_2(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(f"{CONFIGURATION}jobs: 7\n")
    world = World()
    result = run(world, tmp_path, "--requests", "cpu=2", "--config", str(path))
    assert result.exit_code == ExitCode.BAD_INPUT
    assert world.is_old


def test_what_was_not_checked_is_reported(tmp_path: Path) -> None:
    world = install(World(), f"{CONFIGURATION}jobs: 7\n")
    result = run(world, tmp_path, "--requests", "cpu=2", "--dry-run")
    assert result.exit_code == ExitCode.OK, result.output
    assert "  not checked: rules of the cluster for Jobs: " in result.stdout


def test_a_user_that_may_not_read_the_configuration_learns_so() -> None:
    world = World()
    world.api.on("get", CONFIG_MAPS, fail(ForbiddenError("you cannot get configmaps")))
    found = rules_for(world.api, None)
    assert found.unread == "rules of the cluster for Jobs: you cannot get configmaps"


def test_that_it_waits_for_old_pods_is_planned(tmp_path: Path) -> None:
    world = install(World(), f"{CONFIGURATION}jobs: [{{terminating: Deny}}]\n")
    result = run(world, tmp_path, "--requests", "cpu=2", "--dry-run")
    assert "when status.active and status.terminating are 0 the resources change" in result.stdout


@pytest.fixture
def alarm() -> Iterator[None]:
    """Whatever this test does with signals, it leaves no handler behind."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.usefixtures("alarm")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_is_an_interruption(number: signal.Signals) -> None:
    def wait() -> None:
        with interruptible():
            os.kill(os.getpid(), number)
            threading.Event().wait(10)

    with pytest.raises(KeyboardInterrupt):
        wait()


def test_on_another_thread_no_signal_is_waited_for() -> None:
    failed: list[CommandError | ValueError] = []

    def work() -> None:
        try:
            with interruptible():
                pass
        except ValueError as err:
            failed.append(err)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert failed == []


def test_help_says_what_a_percentile_is_of() -> None:
    result = CliRunner().invoke(cli, ["job", "resize", "--help"])
    assert result.exit_code == ExitCode.OK
    words = " ".join(result.stdout.split())
    assert "metrics.k8s.io has one sample per pod, of some seconds, and no history." in words
    assert "deferred-quota job resize train -n team-a --requests cpu=2,memory=4Gi" in words
