"""The namespace of an installation: where it is already, or where an administrator wants it.

An installation is the only one of its cluster, and its namespace is its own: what is removed with
the installation is the whole of it.
"""

from __future__ import annotations

import re
from typing import Final

from webhook.install.kustomizations import InstallError
from webhook.jsonfields.reader import FieldReader
from webhook.kube.api import NAMESPACES, ClusterApi, find_object
from webhook.operations.deployments import (
    NAME_LABEL,
    WEBHOOK_RIGHTS,
    installed_namespace,
    proven_namespace,
)
from webhook.operations.names import CLUSTER_ROLE_BINDINGS
from webhook.state.well_known import DEFAULT_NAMESPACE

_PRODUCT: Final = "deferred-quota"
_HELM_RELEASE: Final = "meta.helm.sh/release-name"
"""The annotation by which Helm knows the objects of a release."""
_PLATFORM: Final = frozenset({"default", "kube-system", "kube-public", "kube-node-lease"})
_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
"""A DNS label (RFC 1123), as names of namespaces are."""


def namespace_to_install(api: ClusterApi, wanted: str) -> str:
    """Return the namespace to install into; one that only says that it is ours has to be named.

    A user with the right to label a namespace could have the key of the CA put into their own.

    Raises:
        InstallError: See `chosen_namespace`; or nothing but a label speaks for the namespace.
        ApiError: The API server does not answer.
    """
    namespace = chosen_namespace(api, wanted)
    if not wanted and namespace not in {DEFAULT_NAMESPACE, proven_namespace(api)}:
        raise InstallError(
            f"namespace {namespace} has the labels of an installation, and nothing else of one is"
            f" there: if it is yours, go on there with --namespace {namespace}; else say"
            f" --namespace {DEFAULT_NAMESPACE}"
        )
    return namespace


def chosen_namespace(api: ClusterApi, wanted: str) -> str:
    """Return the namespace of the installation, or to make one in.

    Args:
        wanted: What the administrator names; empty is where it is installed, else the default.

    Raises:
        InstallError: It is installed elsewhere, or the namespace is not for this product alone.
        ApiError: The API server does not answer.
    """
    there = proven_namespace(api)
    namespace = wanted or there or installed_namespace(api) or DEFAULT_NAMESPACE
    if there and there != namespace:
        raise InstallError(
            f"--namespace {namespace}: it is installed in {there}; leave --namespace out, or"
            f" take it out of there first: scripts/uninstall --namespace {there}"
        )
    if namespace in _PLATFORM or not _NAME.fullmatch(namespace):
        raise InstallError(f"--namespace {namespace}: has to be a namespace of its own")
    if namespace not in {there, DEFAULT_NAMESPACE} and not _is_ours(api, namespace):
        raise InstallError(
            f"--namespace {namespace}: is there already, and may hold what is not deferred-quota's:"
            " it would be removed with it. If it is for this product alone, say so: kubectl label"
            f" namespace {namespace} {NAME_LABEL}={_PRODUCT}"
        )
    return namespace


def is_kept_by_helm(api: ClusterApi) -> bool:
    """Return whether a release of Helm has the installation.

    Raises:
        ApiError: The API server does not answer.
    """
    found = FieldReader(find_object(api, CLUSTER_ROLE_BINDINGS, WEBHOOK_RIGHTS) or {})
    return _HELM_RELEASE in found.child("metadata").string_map("annotations")


def _is_ours(api: ClusterApi, namespace: str) -> bool:
    """Return whether a namespace is missing, or labelled as this product's."""
    found = find_object(api, NAMESPACES, namespace)
    if found is None:
        return True
    labels = FieldReader(found).child("metadata").string_map("labels")
    return labels.get(NAME_LABEL) == _PRODUCT
