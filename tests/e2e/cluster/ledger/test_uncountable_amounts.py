"""An amount that the API server stores and nobody can count stops nothing but its own resource."""

from __future__ import annotations

from tests.e2e.cluster import objects
from tests.e2e.cluster.tenant import NODE, Tenant
from tests.e2e.cluster.waiting import becomes, eventually

_HARD = {"requests.cpu": "4", "limits.memory": "8Gi"}
_FIELD = "spec.containers[0].resources.limits.memory"


def condition(tenant: Tenant) -> dict[str, str]:
    """What the ledger says of amounts that are too large; empty while it says nothing."""
    status = tenant.api.get(objects.ledger(tenant.namespace)).body.get("status", {})
    found = [one for one in status.get("conditions", ()) if one["type"] == "AmountsCountable"]
    return dict(found[0]) if found else {}


def test_a_pod_from_before_the_opt_in_is_over_the_limit_of_its_resource_alone(
    plain: Tenant,
) -> None:
    plain.pod("web", "1", nodeName=NODE)
    plain.pod("odd", "1", nodeName=NODE, limits={"memory": "1e20000"})
    plain.pod("odd-waits", "1", limits={"memory": "1e20000"})
    plain.pod("cpu-only", "1")
    plain.pod("with-memory", "1", limits={"memory": "1Mi"})
    label = {"metadata": {"labels": {objects.MODE_LABEL: "deferred"}}}
    assert plain.api.patch(f"/api/v1/namespaces/{plain.namespace}", label).ok
    plain.quota(hard=_HARD)

    becomes(plain.used, {"requests.cpu": "2", "limits.memory": "1e39"}, "what is used")
    said = eventually(lambda: condition(plain), "the ledger names the pod")
    assert (said["status"], said["reason"]) == ("False", "AmountsTooLarge")
    assert f"{plain.namespace}/odd: {_FIELD}" in said["message"]

    refused = plain.bind("with-memory")
    assert refused.code == 403
    assert "limits.memory" in refused.message
    assert "requests.cpu" not in refused.message
    unread = plain.bind("odd-waits")
    assert unread.code == 422
    assert _FIELD in unread.message

    gone = plain.api.call("DELETE", objects.pods(plain.namespace, "odd"), {"gracePeriodSeconds": 0})
    assert gone.ok
    becomes(plain.used, {"requests.cpu": "1", "limits.memory": "0"}, "what is used then")
    assert plain.bind("with-memory").code == 201
    plain.api.call("DELETE", objects.pods(plain.namespace, "odd-waits"), {"gracePeriodSeconds": 0})
    becomes(lambda: condition(plain)["status"], "True", "whether all can be counted")
