"""Wait until what was applied is in force: Deployments, a leader, definitions, deletions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from webhook.install.apply import current, describe, kind_of_object
from webhook.install.kustomizations import InstallError
from webhook.jsonfields.fields import mapping
from webhook.jsonfields.reader import FieldReader
from webhook.kube.api import LEASES, ClusterApi, Object, find_object
from webhook.kube.metadata import object_name, object_namespace
from webhook.operations.deployments import conditions_of, pods_of, troubles_of
from webhook.operations.leader import Holding, holding_of
from webhook.operations.retry import Report, RetryPolicy, silent
from webhook.state.well_known import LEADER_LEASE

CONFIGURATION_ANNOTATION: Final = "deferredquota.io/configuration"
"""On a pod: which configuration it was started with."""
_TELL_SECONDS: Final = 10.0
"""How often something is said while nothing happens."""
_KEEPING: Final = ("Namespace", "Terminating")
"""How the names of conditions begin that say why something deleted is not gone.

Source: kubernetes v1.36, api/core/v1/types.go NamespaceConditionType.
"""


def wait_until_established(api: ClusterApi, definition: Object, patience: RetryPolicy) -> None:
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

    wait_out(describe(definition), obstacle, patience)


def wait_until_available(api: ClusterApi, deployment: Object, patience: RetryPolicy) -> None:
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

    wait_out(describe(deployment), obstacle, patience)


def wait_until_led(api: ClusterApi, namespace: str, patience: RetryPolicy) -> None:
    """Wait until a controller leads: one on standby is ready, too, and counts nothing.

    No clock is compared with the leader's: the Lease has to change while it is looked at.

    Raises:
        InstallError: None does in time.
        ApiError: The API server does not answer.
    """
    before: Holding | None = None

    def obstacle() -> str:
        nonlocal before
        lease = find_object(api, LEASES, LEADER_LEASE, namespace=namespace)
        former, before = before, None if lease is None else holding_of(FieldReader(lease))
        if before is None or not before.holder:
            return "no controller leads"
        is_renewed = former is not None and former != before
        return "" if is_renewed else f"its holder {before.holder} does not renew it"

    wait_out(f"Lease {namespace}/{LEADER_LEASE}", obstacle, patience)


def wait_out(what: str, obstacle: Callable[[], str], patience: RetryPolicy) -> None:
    """Wait until nothing is in the way of something any more.

    Raises:
        InstallError: Something is, still.
        ApiError: The API server does not answer.
    """
    wait = patience.begin()
    while found := wait.retry(obstacle):
        if not wait.pause():
            raise InstallError(f"{what}: {found}; gave up after {patience.seconds:g} s")


def _read(api: ClusterApi, obj: Object) -> Object:
    return api.get(kind_of_object(obj), object_name(obj), namespace=object_namespace(obj))


def _configuration_of(obj: Object) -> object:
    metadata = mapping(obj.get("metadata"), "metadata")
    return mapping(metadata.get("annotations"), "metadata.annotations").get(
        CONFIGURATION_ANNOTATION
    )


def _former_pods(api: ClusterApi, deployment: Object) -> str:
    """Return which pods still run with another configuration; nothing when none do."""
    spec = mapping(deployment.get("spec"), "spec")
    wanted = _configuration_of(mapping(spec.get("template"), "spec.template"))
    names = [
        object_name(pod)
        for pod in pods_of(api, deployment)
        if _configuration_of(pod) != wanted and not _has_ended(pod)
    ]
    return f"pods with the former configuration still run: {', '.join(names)}" if names else ""


def _has_ended(pod: Object) -> bool:
    return mapping(pod.get("status"), "status").get("phase") in {"Succeeded", "Failed"}


def _pod_troubles(api: ClusterApi, deployment: Object) -> str:
    troubles = troubles_of(api, deployment)
    return f" ({'; '.join(troubles)})" if troubles else ""


def wait_for_deletions(
    api: ClusterApi, objects: Sequence[Object], patience: RetryPolicy | None, report: Report
) -> None:
    """Let an uninstallation end before objects are applied: into what goes nothing can be put.

    Args:
        objects: What is to be applied.
        patience: How long to wait; None is not at all.
        report: Told about it.

    Raises:
        InstallError: Something is being deleted, and not gone in time.
        ApiError: The API server does not answer.
    """
    ending = [each for each in objects if _is_ending(current(api, each))]
    if not ending:
        return
    names = ", ".join(map(describe, ending))
    if patience is None:
        raise InstallError(f"{names}: is being deleted; run this again when it is gone")
    report(f"{names}: is being deleted; the installation begins when it is gone")
    left = wait_until_gone(api, ending, patience, report)
    if left:
        raise InstallError(f"{'; '.join(left)}; gave up after {patience.seconds:g} s")


def wait_until_gone(
    api: ClusterApi, objects: Sequence[Object], patience: RetryPolicy, report: Report = silent
) -> tuple[str, ...]:
    """Wait until objects are gone, and report those that take their time.

    Returns:
        Those that are not gone in time, and what keeps them.

    Raises:
        ApiError: The API server does not answer.
    """
    wait = patience.begin()
    teller = _Teller(report, patience)
    while found := wait.retry(lambda: _left(api, objects)):
        teller.tell(found)
        if not wait.pause():
            return tuple(
                f"{name}: is deleted, but not gone yet{why}" for name, why in found.items()
            )
    teller.tell({})
    return ()


class _Teller:
    """Reporter of a wait: its beginning, its end, and now and then in between."""

    def __init__(self, report: Report, patience: RetryPolicy) -> None:
        self._report = report
        self._clock = patience.clock
        self._begun = self._told = patience.clock()
        self._before: Mapping[str, str] = {}

    def tell(self, left: Mapping[str, str]) -> None:
        """Take what is left now, by name, and what keeps it."""
        for name in (one for one in self._before if one not in left):
            self._report(f"{name}: gone")
        now = self._clock()
        if not self._before:
            self._say(left, "waiting until it is gone")
        elif now - self._told >= _TELL_SECONDS:
            self._told = now
            self._say(left, f"still there after {now - self._begun:.0f} s")
        self._before = left

    def _say(self, left: Mapping[str, str], words: str) -> None:
        for name, why in left.items():
            self._report(f"{name}: {words}{why}")


def _left(api: ClusterApi, objects: Iterable[Object]) -> dict[str, str]:
    """Return the objects that are there by what they are called, and what keeps them."""
    found = {describe(each): current(api, each) for each in objects}
    return {name: _keeping(there) for name, there in found.items() if there is not None}


def _is_ending(found: Object | None) -> bool:
    metadata = {} if found is None else mapping(found.get("metadata"), "metadata")
    return metadata.get("deletionTimestamp") is not None


def _keeping(found: Object) -> str:
    """Return what keeps an object that is deleted: a namespace and a definition tell it."""
    told = [
        message
        for name, (status, message) in conditions_of(found).items()
        if status == "True" and name.startswith(_KEEPING) and message
    ]
    return f" ({'; '.join(told)})" if told else ""
