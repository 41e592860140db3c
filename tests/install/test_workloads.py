"""What runs in the cluster: as the program wants it, as the cluster allows it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any, Final, cast

import click
import pytest

from tests.install.manifests import (
    SYSTEM,
    Manifest,
    entries,
    everything,
    identity,
    of_kind,
    the_one,
)
from webhook.admission.serving.server_settings import ServerSettings
from webhook.admission.serving.sockets import ListenAddress
from webhook.cli.commands.servers import controller, serve
from webhook.config import load_configuration
from webhook.install import MANIFESTS, render
from webhook.install.kustomizations import apply_patches

WORKLOADS: Final = ("webhook", "controller")


@pytest.fixture(params=["default", "ha", "dev"])
def workloads(request: pytest.FixtureRequest) -> list[Manifest]:
    """Return what runs, as an overlay has it."""
    return of_overlay(request.param)


@pytest.fixture(params=WORKLOADS)
def deployment(request: pytest.FixtureRequest, workloads: list[Manifest]) -> Manifest:
    return called(f"deferred-quota-{request.param}", workloads)


def of_overlay(name: str) -> list[Manifest]:
    objects = [*cast("tuple[Any, ...]", render().workloads)]
    if name != "default":
        apply_patches(MANIFESTS / "overlays" / name, objects)
    return objects


def called(name: str, objects: list[Manifest]) -> Manifest:
    (found,) = [each for each in of_kind("Deployment", objects) if each["metadata"]["name"] == name]
    return found


def pod_of(deployment: Manifest) -> Manifest:
    spec: Manifest = deployment["spec"]["template"]["spec"]
    return spec


def container_of(deployment: Manifest) -> Manifest:
    (container,) = pod_of(deployment)["containers"]
    return cast("Manifest", container)


COMMANDS: Final[Mapping[str, click.Command]] = {"serve": serve, "controller": controller}


def test_the_command_line_is_one_that_the_program_reads(deployment: Manifest) -> None:
    command, *arguments = container_of(deployment)["args"]
    options = [argument.partition("=") for argument in arguments]
    known = {name: each for each in COMMANDS[command].params for name in each.opts}
    for option, _, value in options:
        assert option in known, f"{command} has no {option}"
        known[option].type.convert(value, known[option], None)


def test_ports_are_those_that_are_listened_on(deployment: Manifest) -> None:
    arguments = dict(each.split("=", 1) for each in container_of(deployment)["args"][1:])
    listened = {"ops": arguments["--ops"], "webhook": arguments.get("--listen")}
    for port in container_of(deployment)["ports"]:
        assert str(ListenAddress("", port["containerPort"])) == listened[port["name"]]
    assert arguments["--config"].startswith("/etc/deferred-quota/config/")


def test_what_is_mounted_is_where_the_program_looks(deployment: Manifest) -> None:
    arguments = shlex.join(container_of(deployment)["args"])
    volumes = {each["name"] for each in pod_of(deployment)["volumes"]}
    for mount in container_of(deployment)["volumeMounts"]:
        assert mount["name"] in volumes
        assert mount["mountPath"] in arguments or mount["name"] == "tmp"


def test_pods_are_what_restricted_pod_security_wants(deployment: Manifest) -> None:
    pod, container = pod_of(deployment)["securityContext"], container_of(deployment)
    assert pod["runAsNonRoot"] is True
    assert pod["runAsUser"] > 0
    assert pod["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    allowed = {"emptyDir", "configMap", "secret", "name"}
    assert all(set(volume) <= allowed for volume in pod_of(deployment)["volumes"])
    assert "hostNetwork" not in pod_of(deployment)


def test_a_pod_may_take_as_long_to_end_as_the_program_does() -> None:
    settings = ServerSettings(tls=None)
    pod = pod_of(the_one("Deployment", "deferred-quota-webhook"))
    (container,) = pod["containers"]
    before = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    ending = before + settings.drain_seconds + settings.graceful_seconds
    assert ending < pod["terminationGracePeriodSeconds"]


def test_probes_ask_the_port_of_operations(deployment: Manifest) -> None:
    for probe, path in (("startup", "/livez"), ("readiness", "/readyz"), ("liveness", "/livez")):
        asked = container_of(deployment)[f"{probe}Probe"]["httpGet"]
        assert asked == {"path": path, "port": "ops"}


def test_selectors_find_the_pods_and_nothing_else(deployment: Manifest) -> None:
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    wanted = deployment["spec"]["selector"]["matchLabels"]
    budget = the_one("PodDisruptionBudget", deployment["metadata"]["name"])
    assert wanted.items() <= labels.items()
    assert wanted["app.kubernetes.io/component"] == labels["app.kubernetes.io/component"]
    assert budget["spec"]["selector"]["matchLabels"] == wanted
    for constraint in pod_of(deployment)["topologySpreadConstraints"]:
        assert constraint["labelSelector"]["matchLabels"] == wanted


def test_services_lead_to_named_ports() -> None:
    service = the_one("Service", "deferred-quota-webhook")
    labels = the_one("Deployment", "deferred-quota-webhook")["spec"]["template"]["metadata"][
        "labels"
    ]
    assert service["spec"]["selector"].items() <= labels.items()
    (port,) = service["spec"]["ports"]
    assert (port["port"], port["targetPort"]) == (443, "webhook")
    for phase in ("Mutating", "Validating"):
        for entry in entries("webhook", phase).values():
            called = entry["clientConfig"]["service"]
            assert (called["name"], called["namespace"]) == ("deferred-quota-webhook", SYSTEM)


def test_there_is_room_for_all_pods_while_they_are_replaced(workloads: list[Manifest]) -> None:
    quota = the_one("ResourceQuota", "deferred-quota-critical-pods")
    (term,) = quota["spec"]["scopeSelector"]["matchExpressions"]
    deployments = [called(f"deferred-quota-{name}", workloads) for name in WORKLOADS]
    pods = 0
    for each in deployments:
        assert pod_of(each)["priorityClassName"] in term["values"]
        surge = each["spec"]["strategy"].get("rollingUpdate", {"maxSurge": 0})["maxSurge"]
        pods += each["spec"]["replicas"] + surge
    assert int(quota["spec"]["hard"]["pods"]) >= pods


def test_with_high_availability_replicas_share_no_node_that_they_need_not() -> None:
    objects = of_overlay("ha")
    for name, replicas in (("deferred-quota-webhook", 3), ("deferred-quota-controller", 2)):
        found = called(name, objects)
        assert found["spec"]["replicas"] == replicas
        nodes, zones = pod_of(found)["topologySpreadConstraints"]
        assert (nodes["topologyKey"], nodes["maxSkew"]) == ("kubernetes.io/hostname", 1)
        assert (nodes["whenUnsatisfiable"], nodes["nodeTaintsPolicy"]) == ("DoNotSchedule", "Honor")
        assert zones["whenUnsatisfiable"] == "ScheduleAnyway"


def test_for_development_there_is_one_of_each_and_everything_is_logged() -> None:
    objects = of_overlay("dev")
    for name in WORKLOADS:
        found = called(f"deferred-quota-{name}", objects)
        assert found["spec"]["replicas"] == 1
        assert "--log-level=debug" in container_of(found)["args"]


def test_controllers_of_two_versions_never_run_together() -> None:
    controller = the_one("Deployment", "deferred-quota-controller")
    assert controller["spec"]["strategy"] == {"type": "Recreate"}


def test_the_configuration_can_be_read() -> None:
    text = the_one("ConfigMap", "deferred-quota-config")["data"]["config.yaml"]
    load_configuration(text, "config.yaml")


def test_service_accounts_are_bound_to_roles_that_are_there() -> None:
    objects = everything()
    found = {identity(each) for each in objects}
    for kind in ("RoleBinding", "ClusterRoleBinding"):
        for binding in of_kind(kind, objects):
            role = binding["roleRef"]
            namespace = SYSTEM if role["kind"] == "Role" else ""
            assert (role["kind"], namespace, role["name"]) in found
            for subject in binding["subjects"]:
                assert (subject["kind"], subject["namespace"], subject["name"]) in found
