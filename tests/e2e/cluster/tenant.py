"""A namespace of a real cluster, and what its people, its scheduler and its kubelets do in it.

Pods are made for a scheduler that does not exist, so that a test binds them itself; a test about
the real one says `schedulerName="default-scheduler"`. There is no kubelet: pods finish when a test
says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tests.builders import a_pod, a_quota
from tests.controlplane.plane import ControlPlane
from tests.controlplane.rest import Rest
from tests.e2e.cluster import objects
from tests.e2e.cluster.objects import Answer, Api, Object
from tests.e2e.cluster.waiting import becomes, eventually
from tests.reservations import reservations_in
from webhook.quota.amounts.quantity import Quantity
from webhook.quota.objects.names import DEFERRED_KEYS

NODE: Final = "node-0"
NOBODY: Final = "nobody"
"""A scheduler that does not exist."""

REAL: Final = "default-scheduler"
_ZERO: Final = Quantity.parse("0")


class Tenant:
    """One namespace.

    Attributes:
        api: The API server, as an administrator.
        namespace: The namespace's name.
    """

    def __init__(self, rest: Rest, namespace: str) -> None:
        self.api = Api(rest)
        self.namespace = namespace

    # -- pods ------------------------------------------------------------------------------

    def create(
        self,
        name: str,
        cpu: str = "",
        *containers: Object,
        dry_run: bool = False,
        metadata: Mapping[str, Any] | None = None,
        **fields: Any,
    ) -> Answer:
        """Ask for a pod: `cpu` is what its only container requests; see `a_pod` for the rest."""
        wanted = {"schedulerName": NOBODY, **fields}
        if cpu:
            wanted["requests"] = {"cpu": cpu, **wanted.get("requests", {})}
        made = a_pod(*containers, name=name, namespace=self.namespace, **wanted)
        made["metadata"] = {"name": name, **(metadata or {})}
        return self.api.create(objects.pods(self.namespace), made, dry_run=dry_run)

    def pod(self, name: str, cpu: str = "", *containers: Object, **fields: Any) -> Answer:
        """Create a pod, which has to succeed."""
        answer = self.create(name, cpu, *containers, **fields)
        assert answer.ok, str(answer)
        return answer

    def seen(self, name: str) -> Answer:
        """Read a pod."""
        return self.api.get(objects.pods(self.namespace, name))

    def node_of(self, name: str) -> str:
        """Read where a pod is, empty if it waits or there is none."""
        return str(self.seen(name).body.get("spec", {}).get("nodeName", ""))

    def bind(
        self,
        name: str,
        *,
        uid: str = "",
        version: str = "",
        legacy: bool = False,
        dry_run: bool = False,
    ) -> Answer:
        """Ask for a pod to be put on the node."""
        return objects.bind(
            self.api,
            self.namespace,
            name,
            NODE,
            uid=uid,
            version=version,
            legacy=legacy,
            dry_run=dry_run,
        )

    def bound(self, name: str, cpu: str = "", *containers: Object, **fields: Any) -> Answer:
        """Create a pod and bind it, and wait until it is counted; give the pod as it was made."""
        made = self.pod(name, cpu, *containers, **fields)
        answers: list[Answer] = []

        def is_decided() -> bool:
            answers.append(self.bind(name, uid=made.uid))
            return answers[-1].code != 429  # until all is counted for a new registration

        eventually(is_decided, "its bind is decided")
        assert answers[-1].ok, str(answers[-1])
        self.settles()
        return made

    def resize(
        self,
        name: str,
        cpu: str,
        *,
        container: str = "main",
        dry_run: bool = False,
    ) -> Answer:
        """Ask for another size of a pod."""
        resources = {"requests": {"cpu": cpu}}
        patch = {"spec": {"containers": [{"name": container, "resources": resources}]}}
        path = objects.pods(self.namespace, name, "resize")
        return self.api.patch_strategic(path, patch, dry_run=dry_run)

    def set_deadline(self, name: str, seconds: int, *, dry_run: bool = False) -> Answer:
        """Give a pod an active deadline."""
        patch = {"spec": {"activeDeadlineSeconds": seconds}}
        return self.api.patch(objects.pods(self.namespace, name), patch, dry_run=dry_run)

    def finish(self, name: str, phase: str = "Succeeded") -> None:
        """Let a pod end, as its kubelet would report it."""
        path = objects.pods(self.namespace, name, "status")
        answer = self.api.patch(path, {"status": {"phase": phase}})
        assert answer.ok, str(answer)

    def delete(self, name: str, *, grace_seconds: int | None = 0) -> None:
        """Delete a pod; with 0, at once."""
        path = objects.pods(self.namespace, name)
        answer = self.api.delete(path, grace_seconds=grace_seconds)
        assert answer.ok, str(answer)

    def clear(self) -> None:
        """Delete all pods, at once."""
        self.api.call("DELETE", objects.pods(self.namespace), {"gracePeriodSeconds": 0})

    def taken_by_pods(self) -> Quantity:
        """Sum up the cpu requests of the assigned pods that live, by looking at one list."""
        found = _ZERO
        for pod in self.api.get(objects.pods(self.namespace)).body["items"]:
            is_live = pod["status"].get("phase") not in ("Succeeded", "Failed")
            if is_live and pod["spec"].get("nodeName"):
                for container in pod["spec"]["containers"]:
                    found += Quantity.parse(container["resources"]["requests"]["cpu"])
        return found

    def condition(self, name: str, kind: str = "PodScheduled") -> tuple[str, str, str]:
        """Read status, reason and message of a pod's condition."""
        for one in self.seen(name).body.get("status", {}).get("conditions", []):
            if one["type"] == kind:
                return one["status"], one.get("reason", ""), one.get("message", "")
        return "", "", ""

    # -- quotas ----------------------------------------------------------------------------

    def quota(self, name: str = "p1", *, is_deferred: bool = True, **fields: Any) -> Answer:
        """Create a quota of 2 cpu, see `a_quota`, and wait until both sides enforce it."""
        wanted = a_quota(name, namespace=self.namespace, **fields)
        wanted["metadata"] = {"name": name, **fields.get("metadata", {})}
        answer = self.api.create(objects.quotas(self.namespace), wanted)
        assert answer.ok, str(answer)
        hard = wanted["spec"]["hard"]  # type: ignore[index]
        native = set(hard) - DEFERRED_KEYS if is_deferred else set(hard)
        becomes(lambda: set(self.native(name)[1]), native, f"the status of {name}")
        if is_deferred and native != set(hard):
            eventually(lambda: name in self.accounts(), f"{name} is in the ledger", 60)
        if native:
            self._wait_for_native_check()
        return answer

    def edit_quota(self, name: str, spec: Mapping[str, Any], *, dry_run: bool = False) -> Answer:
        """Change fields of a quota's spec, which has to succeed."""
        path = objects.quotas(self.namespace, name)
        answer = self.api.patch(path, {"spec": spec}, dry_run=dry_run)
        assert answer.ok, str(answer)
        return answer

    def native(self, name: str = "p1") -> tuple[dict[str, str], dict[str, str]]:
        """Read `hard` and `used` of a quota's status."""
        answer = self.api.get(objects.quotas(self.namespace, name))
        status = answer.body.get("status", {})
        return status.get("hard", {}), status.get("used", {})

    def _wait_for_native_check(self) -> None:
        """Wait until the API server's own check knows all quotas written so far.

        It is told of them in order: when it enforces a later one, it knows them.
        """
        name = "sentinel"
        secrets = f"/api/v1/namespaces/{self.namespace}/secrets"
        secret = {"metadata": {"name": name}}

        def code() -> int:
            return self.api.create(secrets, secret, dry_run=True).code

        becomes(code, 201, "the sentinel of the time before is forgotten")
        sentinel = {"metadata": {"name": name}, "spec": {"hard": {"secrets": "0"}}}
        self.api.create(objects.quotas(self.namespace), sentinel)
        becomes(code, 403, "enforcement")
        self.api.delete(objects.quotas(self.namespace, name))

    # -- the ledger ------------------------------------------------------------------------

    def ledger(self) -> Object:
        """Read the ledger's status, empty if there is none."""
        found = self.api.get(objects.ledger(self.namespace))
        status: Object = found.body.get("status", {}) if found.ok else {}
        return status

    def ledger_version(self) -> str:
        """Read the ledger's resourceVersion."""
        return self.api.get(objects.ledger(self.namespace)).version

    def accounts(self) -> dict[str, Object]:
        """Read the ledger's accounts by the name of their quota."""
        return {account["name"]: account for account in self.ledger().get("quotas", [])}

    def used(self, quota: str = "p1") -> dict[str, str]:
        """Read what the ledger says is used."""
        found: dict[str, str] = self.accounts().get(quota, {}).get("used", {})
        return found

    def reserved(self, quota: str = "p1") -> dict[str, str]:
        """Read what the ledger says is reserved."""
        found: dict[str, str] = self.accounts().get(quota, {}).get("reserved", {})
        return found

    def charged(self, quota: str = "p1", key: str = "requests.cpu") -> str:
        """Read what is used and reserved of one resource."""
        account = self.accounts().get(quota, {})  # one look: a pod moves from one to the other
        parts = (account.get("used", {}), account.get("reserved", {}))
        return str(sum((Quantity.parse(part.get(key, "0")) for part in parts), _ZERO))

    def promised(self) -> list[str]:
        """Read the names of the pods for which the ledger has a reservation, sorted."""
        return sorted(one["pod"] for one in reservations_in(self.ledger()))

    def settles(self) -> None:
        """Wait until nothing is reserved any more for a pod that has its node."""
        eventually(
            lambda: not [name for name in self.promised() if self.node_of(name)],
            "all assigned pods are counted",
        )

    def rests(self, quota: str = "p1") -> str:
        """Wait until the ledger has no reason to be written again; give its resourceVersion.

        That is when the assigned pods are counted and those that wait are shown, if all match.
        """
        self.settles()
        pods = self.api.get(objects.pods(self.namespace)).body["items"]
        waiting = sum(1 for pod in pods if not pod["spec"].get("nodeName"))

        def shown() -> int:
            return int(self.accounts()[quota].get("pending", {}).get("pods", 0))

        becomes(shown, waiting, "pods that are shown as pending")
        return self.ledger_version()

    def events(self, reason: str) -> list[str]:
        """Read the messages of the events with this reason."""
        path = f"/api/v1/namespaces/{self.namespace}/events"
        found = self.api.get(path).body["items"]
        return [str(one.get("message", "")) for one in found if one.get("reason") == reason]


def edited_by_alice(plane: ControlPlane, tenant: Tenant) -> Tenant:
    """Give a user the role `edit` in a namespace, and return it as that user sees it."""
    role = ("--clusterrole=edit", "--user=alice", f"--namespace={tenant.namespace}")
    plane.kubectl("create", "rolebinding", "alice", *role)
    alice = Tenant(plane.rest_as("alice", ("devs",)), tenant.namespace)
    eventually(lambda: alice.api.get(objects.pods(tenant.namespace)).ok, "alice may edit it")
    return alice


def marked(answer: Answer) -> bool:
    """Say whether a pod carries the mark of a bind that was asked about before it was judged."""
    return objects.GUARDED in answer.body["metadata"].get("annotations", {})
