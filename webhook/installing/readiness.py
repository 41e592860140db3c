"""Wait until what was applied does its work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from webhook.cluster.api import ClusterApi, NotFoundError, Object
from webhook.installing.applying import describe, kind_of_object
from webhook.installing.kustomizations import InstallError
from webhook.operations.deployments import conditions_of, pods_of, troubles_of
from webhook.operations.patience import Patience
from webhook.quota.fields import mapping

CONFIGURATION_ANNOTATION: Final = "deferredquota.io/configuration"
"""On a pod: which configuration it was started with."""


def wait_until_established(api: ClusterApi, definition: Object, patience: Patience) -> None:
    """Wait until the API server serves the kind that a CustomResourceDefinition defines.

    Raises:
        InstallError: It does not in time.
        ApiError: The API server does not answer.
    """

    def obstacle() -> str:
        conditions = conditions_of(_read(api, definition))
        if conditions.get("Established", ("", ""))[0] == "True":
            return ""
        refused = conditions.get("NamesAccepted", ("", ""))
        return refused[1] if refused[0] == "False" else "is not served yet"

    _wait(describe(definition), obstacle, patience)


def wait_until_available(api: ClusterApi, deployment: Object, patience: Patience) -> None:
    """Wait until all replicas of a Deployment are as it says, and ready, and no others are there.

    A pod that ends still answers for a while, by the configuration that it has.

    Raises:
        InstallError: They are not in time; the error says what keeps the pods.
        ApiError: The API server does not answer.
    """

    def obstacle() -> str:
        found = _read(api, deployment)
        spec, status = mapping(found.get("spec"), "spec"), mapping(found.get("status"), "status")
        wanted = spec.get("replicas", 1)
        seen = mapping(found.get("metadata"), "metadata").get("generation")
        if status.get("observedGeneration") != seen:
            return "has not been looked at by the Deployment controller"
        counts = [status.get(name, 0) for name in ("updatedReplicas", "availableReplicas")]
        # the total is higher while pods of the former kind are still there
        if counts == [wanted, wanted] and status.get("replicas") == wanted:
            return _former_pods(api, found)
        return f"{counts[1]} of {wanted} replicas are available{_pod_troubles(api, found)}"

    _wait(describe(deployment), obstacle, patience)


def _wait(what: str, obstacle: Callable[[], str], patience: Patience) -> None:
    wait = patience.begin()
    while found := wait.persist(obstacle):
        if not wait.pause():
            raise InstallError(f"{what}: {found}; gave up after {patience.seconds:g} s")


def _read(api: ClusterApi, obj: Object) -> Object:
    metadata = mapping(obj.get("metadata"), "metadata")
    name, namespace = str(metadata["name"]), str(metadata.get("namespace") or "")
    return api.get(kind_of_object(obj), name, namespace=namespace)


def _configuration_of(obj: Object) -> object:
    metadata = mapping(obj.get("metadata"), "metadata")
    return mapping(metadata.get("annotations"), "metadata.annotations").get(
        CONFIGURATION_ANNOTATION
    )


def _former_pods(api: ClusterApi, deployment: Object) -> str:
    """Say which pods still run with another configuration; nothing when none do."""
    spec = mapping(deployment.get("spec"), "spec")
    wanted = _configuration_of(mapping(spec.get("template"), "spec.template"))
    names = [
        str(mapping(pod.get("metadata"), "metadata")["name"])
        for pod in pods_of(api, deployment)
        if _configuration_of(pod) != wanted and not _has_ended(pod)
    ]
    return f"pods with the former configuration still run: {', '.join(names)}" if names else ""


def _has_ended(pod: Object) -> bool:
    return mapping(pod.get("status"), "status").get("phase") in {"Succeeded", "Failed"}


def _pod_troubles(api: ClusterApi, deployment: Object) -> str:
    troubles = troubles_of(api, deployment)
    return f" ({'; '.join(troubles)})" if troubles else ""


def wait_until_gone(
    api: ClusterApi, objects: Sequence[Object], patience: Patience
) -> tuple[str, ...]:
    """Wait until objects are gone; return those that are not in time.

    Raises:
        ApiError: The API server does not answer.
    """
    wait = patience.begin()

    def left() -> list[Object]:
        return [each for each in objects if _is_there(api, each)]

    while found := wait.persist(left):
        if not wait.pause():
            return tuple(describe(each) for each in found)
    return ()


def _is_there(api: ClusterApi, obj: Object) -> bool:
    try:
        _read(api, obj)
    except NotFoundError:
        return False
    return True
