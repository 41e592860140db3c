"""An embedded cluster from snapshot files, as an API server would hold their objects.

Pods and quotas get the API server's defaults for resources, as manifests written by hand lack
them. What an API server would never have stored, such as an amount that is no quantity, is refused
here with its file, document and field, before anything is loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

from webhook.fakecluster.manifests.snapshot import (
    SnapshotError,
    SnapshotObject,
    read_files,
    read_snapshot,
)
from webhook.fakecluster.storage import FakeCluster
from webhook.jsonfields.fields import InvalidFieldError
from webhook.kube.api import (
    CLUSTER_DEFERRED_QUOTAS,
    PODS,
    RESOURCE_QUOTAS,
    BadRequestError,
    Kind,
    Object,
)
from webhook.kube.files.documents import Place
from webhook.quota.objects.defaults import default_pod, default_quota
from webhook.quota.objects.model import Pod, ResourceQuota
from webhook.quota.objects.qos import qos_class
from webhook.quota.shared.cluster_quotas import cluster_quota
from webhook.state.well_known import DEFERRED_MODE, GATING_LABEL, MODE_LABEL, NEVER_GATING

OPTED_IN: Final[Mapping[str, str]] = {MODE_LABEL: DEFERRED_MODE, GATING_LABEL: NEVER_GATING}
"""Labels of a Namespace that a snapshot mentions and does not hold: it shows what would happen
if quota were deferred there. No pod gets a gate, as users bind pods by hand."""


def load_cluster(paths: Iterable[Path]) -> FakeCluster:
    """Make a cluster of the objects in some files.

    Raises:
        SnapshotError: Something cannot be read; nothing is loaded.
    """
    found = read_snapshot(read_files(paths), namespace_labels=OPTED_IN)
    cluster = FakeCluster(qos=_qos, require_namespaces=True)
    cluster.load([(one.kind, _as_stored(one)) for one in found])
    return cluster


def with_defaults(kind: Kind, raw: Object) -> Object:
    """Fill in the defaults for resources that the API server fills in when it decodes an object.

    Raises:
        BadRequestError: An amount cannot be read, as the API server answers then.
    """
    default = _DEFAULTS.get(kind)
    if default is None:
        return raw
    try:
        return default(raw)
    except InvalidFieldError as err:
        raise BadRequestError(f"{kind.kind} in version {kind.version}: {err}") from err


def _pod(raw: Object) -> Object:
    defaulted = default_pod(raw)
    Pod.from_object(defaulted)
    return defaulted


def _quota(raw: Object) -> Object:
    defaulted = default_quota(raw)
    ResourceQuota.from_object(defaulted)
    return defaulted


def _cluster_quota(raw: Object) -> Object:
    cluster_quota(raw)  # its definition would refuse what cannot be read
    return raw


_DEFAULTS: Final[Mapping[Kind, Callable[[Object], Object]]] = {
    PODS: default_pod,
    RESOURCE_QUOTAS: default_quota,
}
_STORED_AS: Final[Mapping[Kind, Callable[[Object], Object]]] = {
    PODS: _pod,
    RESOURCE_QUOTAS: _quota,
    CLUSTER_DEFERRED_QUOTAS: _cluster_quota,
}


def _as_stored(found: SnapshotObject) -> Object:
    store = _STORED_AS.get(found.kind)
    if store is None:
        return found.object
    try:
        return store(found.object)
    except InvalidFieldError as err:
        field = ".".join(part for part in (found.field, err.field) if part)
        detail = f"{err.detail} ({found.kind.kind} {found.key})"
        raise SnapshotError(found.file, detail, Place(found.document), field=field) from err


def _qos(pod: Object) -> str:
    try:
        return qos_class(Pod.from_object(pod))
    except InvalidFieldError:
        return ""
