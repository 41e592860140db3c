"""Objects and namespaces for the tests of `check`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.builders import Object, a_container
from webhook.quota.amounts.resources import ResourceList, parse_resource_list
from webhook.quota.checking.rollouts import Rollout
from webhook.quota.checking.subjects import ManifestObject, ReadOptions, read_subject
from webhook.quota.checking.values import Balance, Subject, Terms
from webhook.quota.objects.model import ResourceQuota

RESOURCES = {
    "Pod": ("v1", "pods"),
    "Deployment": ("apps/v1", "deployments.apps"),
    "DaemonSet": ("apps/v1", "daemonsets.apps"),
    "StatefulSet": ("apps/v1", "statefulsets.apps"),
    "CronJob": ("batch/v1", "cronjobs.batch"),
    "Job": ("batch/v1", "jobs.batch"),
    "Service": ("v1", "services"),
    "ConfigMap": ("v1", "configmaps"),
    "PersistentVolumeClaim": ("v1", "persistentvolumeclaims"),
}


def amounts(**texts: str) -> ResourceList:
    """Amounts by quota key, `_` for a dot."""
    return parse_resource_list(
        {name.replace("_", "."): text for name, text in texts.items()}, field=""
    )


def a_balance(
    name: str = "team",
    *,
    used: ResourceList | None = None,
    at_bind: bool = False,
    scopes: Sequence[str] = (),
    **hard: str,
) -> Balance:
    """A quota with its usage."""
    limits = {key.replace("_", "."): text for key, text in hard.items()}
    raw: Object = {"metadata": {"name": name}, "spec": {"hard": limits, "scopes": list(scopes)}}
    return Balance(ResourceQuota.from_object(raw), amounts(**hard), used or {}, at_bind=at_bind)


def an_object(kind: str, name: str = "web", spec: Mapping[str, object] | None = None) -> Object:
    """An object of a kind, in the namespace `team-a`."""
    meta: Object = {"name": name, "namespace": "team-a"}
    return {"apiVersion": RESOURCES[kind][0], "kind": kind, "metadata": meta, "spec": spec or {}}


def a_pod_spec(cpu: str = "1", **fields: object) -> Object:
    """A spec with one container."""
    container = a_container(requests={"cpu": cpu}) if cpu else a_container()
    return {"containers": [container], **fields}


def a_workload(
    kind: str = "Deployment", name: str = "web", replicas: int = 1, cpu: str = "1", **spec: object
) -> Object:
    """A workload of pods that request a cpu each."""
    template: Object = {"metadata": {}, "spec": a_pod_spec(cpu)}
    size: Object = {} if kind == "Job" else {"replicas": replicas}
    return an_object(kind, name, {**size, "template": template, **spec})


def a_subject(
    raw: Object,
    terms: Terms | None = None,
    rollout: Rollout = Rollout.STEADY,
    status: Object | None = None,
) -> Subject:
    """An object as it is judged."""
    kind, meta = str(raw["kind"]), raw["metadata"]
    assert isinstance(meta, dict)
    one = ManifestObject(raw, RESOURCES[kind][1], "team-a", str(meta["name"]))
    return read_subject(one, terms or Terms(), ReadOptions(rollout), status=status)
