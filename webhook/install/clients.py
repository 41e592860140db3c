"""The clients that the webhook answers, where these are not all: what an installation says of them.

`components/client-auth` mounts the CA of a ConfigMap and names the clients in the arguments of the
webhook. An installation keeps what it has until other clients are given.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from webhook.install.kustomizations import InstallError, Manifest, add_component
from webhook.jsonfields.fields import string_map
from webhook.jsonfields.reader import FieldReader
from webhook.kube.api import CONFIG_MAPS, ClusterApi, find_object
from webhook.operations.deployments import DEPLOYMENTS, WEBHOOK

CLIENT_CA: Final = "deferred-quota-client-ca"
"""The ConfigMap with the CA of clients."""
CLIENT_NAME: Final = "^[ -#%-~]+$"
"""A name of a client as it may stand in arguments, where Kubernetes expands `$(NAME)`."""
_KEY: Final = "ca.crt"
_NAME: Final = "--client-name="


@dataclass(frozen=True, slots=True)
class KnownClients:
    """Clients that the webhook answers, in place of all."""

    ca_pem: str
    """The CA of their certificates."""
    names: tuple[str, ...]
    """Their common names."""


def know_clients(workloads: Sequence[Manifest], clients: KnownClients, component: Path) -> None:
    """Let the webhook among some objects answer these clients only, as a component does it.

    Raises:
        InstallError: The component is not there, or not as it has to be.
    """
    add_component(component, workloads)
    for container in _containers(workloads):
        arguments = cast("list[str]", container["args"])
        others = [each for each in arguments if not each.startswith(_NAME)]
        if len(others) < len(arguments):
            container["args"] = [*others, *(f"{_NAME}{name}" for name in clients.names)]


def client_authority(clients: KnownClients, namespace: str) -> Manifest:
    """Return the ConfigMap with the CA of clients."""
    labels = {"name": "deferred-quota", "part-of": "deferred-quota", "component": "webhook"}
    metadata = {
        "name": CLIENT_CA,
        "namespace": namespace,
        "labels": {f"app.kubernetes.io/{name}": text for name, text in labels.items()},
    }
    return CONFIG_MAPS.make(metadata, data={_KEY: clients.ca_pem})


def installed_clients(api: ClusterApi, namespace: str) -> KnownClients | None:
    """Return the clients that an installation answers; None if they are all, or nothing runs.

    Raises:
        InstallError: The webhook asks for certificates of a CA that is not there.
        ApiError: The API server does not answer.
    """
    webhook = find_object(api, DEPLOYMENTS, WEBHOOK, namespace=namespace) or {}
    pod = FieldReader(webhook).child("spec").child("template").child("spec")
    arguments = [each for one in pod.children("containers") for each in one.strings("args")]
    names = tuple(each.removeprefix(_NAME) for each in arguments if each.startswith(_NAME))
    if not names:
        return None
    authority = find_object(api, CONFIG_MAPS, CLIENT_CA, namespace=namespace) or {}
    ca_pem = string_map(authority.get("data"), "data").get(_KEY)
    if not ca_pem:
        raise InstallError(
            f"ConfigMap {namespace}/{CLIENT_CA}: has no {_KEY}, the CA of the clients that the"
            " webhook answers: give it with --client-ca FILE --client-name NAME, or let it answer"
            " all with --all-clients"
        )
    return KnownClients(ca_pem, names)


def _containers(workloads: Sequence[Manifest]) -> list[Manifest]:
    """Return the containers of all Deployments, to be changed in place."""
    return [
        container
        for each in workloads
        if each["kind"] == DEPLOYMENTS.kind
        for container in cast("Any", each)["spec"]["template"]["spec"]["containers"]
    ]
