"""Elastic quotas of the tests, as objects."""

from __future__ import annotations

Object = dict[str, object]


def an_elastic_quota(
    namespace: str, least: Object | None = None, most: Object | None = None, **spec: object
) -> Object:
    limits = {name: given for name, given in (("min", least), ("max", most)) if given is not None}
    return {
        "apiVersion": "nos.nebuly.com/v1alpha1",
        "kind": "CompositeElasticQuota" if "namespaces" in spec else "ElasticQuota",
        "metadata": {"name": "q", "namespace": namespace},
        "spec": {**limits, **spec},
    }


def a_pod_group(
    mode: object, name: str = "train", *, namespace: str = "team-b", version: str = "v1alpha2"
) -> Object:
    return {
        "apiVersion": f"scheduling.k8s.io/{version}",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"schedulingPolicy": {"basic": {}}, "disruptionMode": mode},
    }
