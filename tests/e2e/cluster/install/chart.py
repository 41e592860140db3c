"""Helm and the chart, and the objects that the chart has to make of its values."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, cast

from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster.installed import of_an_overlay
from tests.install.manifests import with_cert_manager
from tests.tools.programs import provide
from webhook import __version__
from webhook.config import BindNodeFit, ReclaimMode, load_configuration
from webhook.install import MANIFESTS, render
from webhook.install.chart import CHART
from webhook.install.clients import KnownClients
from webhook.install.kustomizations import read_directory
from webhook.install.rendering import API_PRIORITY, Mask, configured
from webhook.kube.files.documents import read_documents
from webhook.operations.creation import CreationRules
from webhook.operations.names import CONFIG_KEY
from webhook.state.well_known import DEFAULT_NAMESPACE

POD_FIELDS: Final = ("imagePullSecrets", "nodeSelector", "tolerations")
Values = Mapping[str, Any]
Found = dict[str, dict[str, Any]]
"""Objects by kind, namespace and name."""

RELEASE: Final = "quota"
SERVES_DEVICE_CLASSES: Final = ("--api-versions", "resource.k8s.io/v1/DeviceClass")
SERVES_ALL: Final = (
    "--api-versions",
    "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy",
    *SERVES_DEVICE_CLASSES,
)


@cache
def helm_program() -> Path:
    return provide("helm", print)


def helm(*arguments: str | Path, code: int = 0, stdin: str = "") -> str:
    """Run helm; return what it printed, or the error with which it is to fail."""
    own = {name: text for name, text in os.environ.items() if not name.startswith("HELM_")}
    done = subprocess.run(
        [helm_program(), *map(str, arguments)],
        env=own,
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stderr if code else done.stdout


def template(values: Values, *arguments: str, code: int = 0, home: str = DEFAULT_NAMESPACE) -> str:
    """Return what `helm template` prints for values."""
    options = ("--namespace", home, "--values", "-", *arguments)
    return helm(
        "template",
        RELEASE,
        CHART,
        *options,
        code=code,
        stdin=json.dumps(values, ensure_ascii=False),
    )


@dataclass(frozen=True)
class Release:
    """A release of the chart on a control plane."""

    plane: ControlPlane
    home: str = DEFAULT_NAMESPACE

    def run(self, command: str, *arguments: str | Path, code: int = 0, stdin: str = "") -> str:
        """Run a command of helm on the release."""
        access = ("--namespace", self.home, "--kubeconfig", self.plane.kubeconfig())
        return helm(command, RELEASE, *arguments, *access, code=code, stdin=stdin)

    def install(self, values: Values, *options: str | Path, code: int = 0) -> str:
        """Install the chart with values."""
        return self._write("install", values, "--create-namespace", *options, code=code)

    def upgrade(self, values: Values, *options: str | Path, code: int = 0) -> str:
        """Install the chart over what is there, with these values alone."""
        return self._write("upgrade", values, "--reset-values", *options, code=code)

    def _write(self, command: str, values: Values, *options: str | Path, code: int) -> str:
        text = json.dumps(values, ensure_ascii=False)
        return self.run(command, CHART, "--values", "-", *options, code=code, stdin=text)


def by_identity(objects: Sequence[Any]) -> Found:
    """Return objects by what tells them apart, each of which is there once."""
    found: Found = {}
    for each in objects:
        metadata = each["metadata"]
        name = f"{each['kind']} {metadata.get('namespace', '')}/{metadata['name']}"
        assert name not in found
        found[name] = each
    return found


def made_objects(values: Values, *arguments: str, home: str = DEFAULT_NAMESPACE) -> Found:
    """Return the objects that the chart makes of values."""
    text = template(values, *arguments, home=home)
    documents = read_documents("helm template", text.encode())
    return by_identity([each.value for each in documents if each.value is not None])


def wanted_objects(
    values: Values, made: Found, *, mask: Mask, home: str, serves_all: bool = True
) -> Found:
    """Return the objects that have to be made of values.

    Args:
        values: Values of the chart.
        made: The objects that were made: the text of the configuration is taken from there, as
            many texts mean the same.
        mask: The form of the mask that the API server can have.
        home: The namespace of the release.
        serves_all: Whether the API server has policies that may decide about new pods, and
            DeviceClasses.
    """
    is_served = serves_all and values.get("creation", "auto") != "webhook"
    text = made[f"ConfigMap {home}/deferred-quota-config"]["data"][CONFIG_KEY]
    settings = load_configuration(text, "ConfigMap")
    given: dict[str, Any] = {"apiVersion": "deferredquota.io/v1alpha1", "kind": "Configuration"}
    is_issued = values.get("certManager", {}).get("enabled", False)
    if is_issued:
        given |= {"certificates": {"rotate": False}}
    assert settings == load_configuration(
        json.dumps({**given, **values.get("configuration", {})}, ensure_ascii=False), "values"
    )
    parts = render(
        namespace=home,
        url=values.get("url", ""),
        ca_pem=values.get("ca", "").encode(),
        mask=mask,
        stamps=values.get("stamps", False),
        page=settings.page,
        rotates=settings.certificates.rotate,
        reclaim=settings.elastic.reclaim.mode if settings.elastic.enabled else ReclaimMode.OFF,
        judges_nodes=settings.node_fit is not BindNodeFit.OFF,
        clients=_clients(values.get("clientAuth", {})),
        deferred_resources=settings.deferred_resources,
        exempt_namespaces=settings.exempt_namespaces,
        gating=settings.gating,
        creation=CreationRules.of(settings) if is_served else None,
        trusted_users=settings.trusted_users,
        break_glass_groups=settings.break_glass_groups,
        image=_image(values.get("image", {})),
    )
    every = with_cert_manager(parts.objects, home) if is_issued else parts.objects
    objects = cast("list[Any]", configured(every, text))
    objects = objects if serves_all else of_an_overlay(objects)
    wanted = by_identity([each for each in objects if each["kind"] != "Namespace"])
    for each in wanted.values():
        if each["kind"] == "CustomResourceDefinition":
            each["metadata"]["annotations"] = {"helm.sh/resource-policy": "keep"}
    wanted |= _monitoring(values, home)
    wanted |= _priority(values, home)
    if not values.get("url"):
        _scale(wanted, values, home)
        wanted |= _network_policies(values.get("networkPolicy", {}), home)
    return wanted


def _clients(given: Mapping[str, Any]) -> KnownClients | None:
    if not given.get("ca"):
        return None
    return KnownClients(f"{given['ca'].rstrip()}\n", tuple(given["names"]))


def _image(given: Mapping[str, str]) -> str:
    repository = given.get("repository", "deferred-quota")
    if "digest" in given:
        return f"{repository}@{given['digest']}"
    return f"{repository}:{given.get('tag', __version__)}"


def _scale(wanted: Found, values: Values, home: str) -> None:
    replicas = 0
    for component in ("webhook", "controller"):
        spec = wanted[f"Deployment {home}/deferred-quota-{component}"]["spec"]
        given = values.get(component, {})
        spec["replicas"] = given.get("replicas", spec["replicas"])
        replicas += spec["replicas"]
        pod = spec["template"]["spec"]
        pod.update({name: values[name] for name in POD_FIELDS if values.get(name)})
        (container,) = pod["containers"]
        for kind, amounts in given.get("resources", {}).items():
            container["resources"][kind] = {**container["resources"].get(kind, {}), **amounts}
    hard = wanted[f"ResourceQuota {home}/deferred-quota-critical-pods"]["spec"]["hard"]
    hard["pods"] = str(2 * replicas)


def _priority(values: Values, home: str) -> Found:
    if not values.get("apiPriority", {}).get("enabled"):
        return {}
    made = json.dumps(read_directory(MANIFESTS / API_PRIORITY))
    return by_identity(json.loads(made.replace(DEFAULT_NAMESPACE, home)))


def _monitoring(values: Values, home: str) -> Found:
    given = values.get("monitoring", {})
    if not given.get("enabled"):
        return {}
    rule, monitor = cast("list[Any]", read_directory(MANIFESTS / "components/monitoring"))
    for each in (rule, monitor):
        each["metadata"]["namespace"] = home
        each["metadata"]["labels"] = {**given.get("labels", {}), **each["metadata"]["labels"]}
    for alert in (one for group in rule["spec"]["groups"] for one in group["rules"]):
        path = alert["annotations"]["runbook_url"]
        alert["annotations"]["runbook_url"] = f"{given.get('runbooks', '')}{path}"
    (endpoint,) = monitor["spec"]["endpoints"]
    endpoint["interval"] = given.get("interval", endpoint["interval"])
    return by_identity([rule] if values.get("url") else [rule, monitor])


def _network_policies(given: Values, home: str) -> Found:
    if not given.get("enabled"):
        return {}
    policies: list[Any] = list(read_directory(MANIFESTS / "components/network-policy"))
    for policy in policies:
        policy["metadata"]["namespace"] = home
        rule = policy["spec"]["ingress"][0]
        name = policy["metadata"]["name"].removeprefix("deferred-quota-")
        rule["from"] = given.get(f"{name}From", rule.get("from", []))
    return by_identity(policies)
