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
