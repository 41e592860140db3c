"""A pod that the API server lists, but cannot write into a watch, keeps no quota of others."""

from __future__ import annotations

from functools import partial
from typing import Final

from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster import objects
from tests.e2e.cluster.product import Product
from tests.e2e.cluster.tenant import Tenant, edited_by_alice
from tests.e2e.cluster.waiting import becomes, eventually

_PROTOBUF: Final = "application/vnd.kubernetes.protobuf"
_PODS: Final = "pods of the controller"
_LEVELS: Final = 9998
"""Of managed fields; with four around them they are more than the 10,000 of an event's JSON."""


def test_a_pod_that_ends_each_watch_keeps_no_quota(
    plane: ControlPlane, product: Product, tenant: Tenant, plain: Tenant
) -> None:
    tenant.quota()
    tenant.bound("web", "2")
    alice = edited_by_alice(plane, plain)
    relists = partial(product.controller.metric, "cache_relists_total", kind=_PODS)
    before = relists()
    where, deep = objects.pods(plain.namespace), a_deep_pod("deep", _LEVELS)
    assert alice.api.rest.call("POST", where, deep, _PROTOBUF)[0] == 201
    tenant.delete("web")
    becomes(tenant.used, {"requests.cpu": "0"}, "what is used")
    assert tenant.pod("next", "2").code == 201
    assert tenant.bind("next").code == 201
    eventually(lambda: relists() > before, "pods are listed anew")
    # its deletion is an event like that, too
    assert alice.api.rest.call("DELETE", f"{where}/deep")[0] == 200
    tenant.delete("next")
    becomes(tenant.used, {"requests.cpu": "0"}, "what is used")


def a_deep_pod(name: str, levels: int) -> bytes:
    """Write a pod as protobuf: as JSON no client can send so many levels.

    Source: kubernetes v1.36, api/core/v1/generated.proto and
    apimachinery/pkg/apis/meta/v1/generated.proto, whose numbers of fields these are.
    """
    fields = b'{"f:a":' * (levels - 1) + b"{}" + b"}" * (levels - 1)
    entry = (
        _field(1, b"manager")
        + _field(2, b"Update")
        + _field(3, b"v1")
        + _field(6, b"FieldsV1")
        + _field(7, _field(1, fields))
    )
    metadata = _field(1, name.encode()) + _field(17, entry)
    container = _field(1, b"main") + _field(2, b"registry.invalid/image")
    pod = _field(1, metadata) + _field(2, _field(2, container))
    kind = _field(1, b"v1") + _field(2, b"Pod")
    return b"k8s\x00" + _field(1, kind) + _field(2, pod)


def _field(number: int, content: bytes) -> bytes:
    """Write a field that has a length."""
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    written = bytearray()
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)
