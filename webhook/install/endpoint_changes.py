"""Changes of the place at which API servers call the webhook."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from webhook.install.apply import current
from webhook.install.rendering import render
from webhook.jsonfields.reader import FieldReader
from webhook.kube.api import VALIDATING_WEBHOOKS, ClusterApi, find_object
from webhook.kube.metadata import object_name
from webhook.operations.deployments import asked_at
from webhook.state.well_known import REGISTRATION
from webhook.tls.rotation_store import SERVICE


def endpoint_changes(
    api: ClusterApi,
    url: str,
    *,
    namespace: str,
    manifests: Path,
    dry_run: bool,
) -> Iterator[str]:
    """Return what an installation changes about where the webhook is; nothing if it stays there.

    Args:
        api: The cluster as it is before.
        url: Where the webhook is to be, outside of the cluster; empty is inside.
        namespace: Namespace of the installation.
        manifests: Directory of the manifests.
        dry_run: Whether nothing will change.

    Raises:
        ApiError: The cluster does not answer.
        InvalidFieldError: The registration that is there cannot be read.
    """
    before, after = _asked_now(api), _base(url)
    if before is None or before == after:
        return
    inside = f"the cluster (Service {namespace}/{SERVICE})"
    verb = "would move" if dry_run else "moves"
    yield f"webhook: {verb} from {before or inside} to {after or inside}"
    if after:
        yield (
            f"webhook: the API server asks {after} from then on: a webhook has to answer there, and"
            " a controller has to run"
        )
        yield from _left_behind(api, namespace, manifests)
        return
    yield (
        f"webhook: what runs at {before} is asked no more: stop it when this is done, and a"
        " controller that runs beside it"
    )


def is_registered(api: ClusterApi) -> bool:
    """Return whether an installation is there, wherever its webhook is."""
    return _asked_now(api) is not None


def trusted_now(api: ClusterApi, url: str) -> bytes:
    """Return the CAs that the API server trusts at a URL already, as PEM; empty is none of ours.

    Raises:
        ApiError: The cluster does not answer.
        InvalidFieldError: The registration that is there cannot be read.
    """
    registration = FieldReader(find_object(api, VALIDATING_WEBHOOKS, REGISTRATION) or {})
    clients = [entry.child("clientConfig") for entry in registration.children("webhooks")]
    bundles = [one.text("caBundle") for one in clients if _base(one.text("url")) == _base(url)]
    return next((base64.b64decode(bundle) for bundle in bundles if bundle), b"")


def _asked_now(api: ClusterApi) -> str | None:
    """Return where the API server asks now; empty is the Service, None nowhere."""
    return asked_at(find_object(api, VALIDATING_WEBHOOKS, REGISTRATION) or {})


def _base(url: str) -> str:
    place = urlsplit(url)
    return f"{place.scheme}://{place.netloc}" if url else ""


def _left_behind(api: ClusterApi, namespace: str, manifests: Path) -> Iterator[str]:
    """Name the Deployments that go on without being asked."""
    inside = render(namespace=namespace, manifests=manifests).workloads
    found = [
        object_name(each)
        for each in inside
        if each["kind"] == "Deployment" and current(api, each) is not None
    ]
    if found:
        yield (
            "Deployments: stay, and the webhook among them is asked no more; when all runs outside:"
            f" kubectl delete deployments -n {namespace} {' '.join(found)}"
        )
