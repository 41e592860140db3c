"""A Lease of coordination.k8s.io/v1 as elections read and write it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from webhook.jsonfields.encoding import encode_json
from webhook.jsonfields.fields import mapping
from webhook.jsonfields.reader import FieldReader
from webhook.kube.api import LEASES, Object
from webhook.state.lazy_ledger import identity_of

_MICROSECOND = timedelta(microseconds=1)
_MOST_TRANSITIONS = 2**31 - 1
"""Stored are 32 bits: with one more the API server would refuse the lease of every next holder."""
_MOST_BYTES = 16 * 1024
"""Of a Lease that is larger nothing is kept but what is ours: one that fills what is stored of an
object at most could not be written by the next holder."""


def micro_time(moment: datetime) -> str:
    """Write a moment as a MicroTime: RFC 3339 in UTC with six digits of a second."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


@dataclass(frozen=True, slots=True)
class LeaseSpec:
    """Spec of a Lease."""

    holder: str = ""
    """The leader's identity; empty when the lease was given back."""
    seconds: int = 0
    """For how long the holder leads after each renewal."""
    acquired: str = ""
    """When it began to lead, by its own clock; shown, never compared."""
    renewed: str = ""
    """When it last renewed, by its own clock; shown, never compared."""
    transitions: int = 0
    """How often the lease went to another holder."""

    def renewed_at(self, moment: datetime) -> LeaseSpec:
        """Return the term renewed now; it differs even when the clock stands still.

        A write that changes nothing would leave the lease at its version, as if it had no holder.
        """
        renewed = micro_time(moment)
        if renewed == self.renewed:
            renewed = micro_time(moment + _MICROSECOND)
        return replace(self, renewed=renewed)

    def taken_by(self, holder: str, seconds: int, moment: datetime) -> LeaseSpec:
        """Return the term of the next holder."""
        transitions = self.transitions + (1 if self.holder != holder else 0)
        taken = replace(
            self,
            holder=holder,
            seconds=seconds,
            acquired=micro_time(moment),
            transitions=min(transitions, _MOST_TRANSITIONS),
        )
        return taken.renewed_at(moment)

    def released(self, moment: datetime) -> LeaseSpec:
        """Return the term without holder, which any process may take at once."""
        return replace(self, holder="", seconds=1).renewed_at(moment)


@dataclass(frozen=True, slots=True)
class StoredLease:
    """A Lease object as it was read or written."""

    resource_version: int
    uid: str
    spec: LeaseSpec


def read_lease(raw: Object) -> StoredLease:
    """Read a Lease; fields that cannot be read count as absent.

    Raises:
        InvalidFieldError: It has no usable metadata or spec.
    """
    uid, version = identity_of(raw)
    spec = FieldReader(raw).child("spec")
    epoch = LeaseSpec(
        holder=spec.text("holderIdentity"),
        seconds=max(0, spec.integer("leaseDurationSeconds") or 0),
        acquired=spec.text("acquireTime"),
        renewed=spec.text("renewTime"),
        transitions=spec.integer("leaseTransitions") or 0,
    )
    return StoredLease(version, uid, epoch)


def lease_object(
    namespace: str, name: str, lease_spec: LeaseSpec, over: Object | None = None
) -> dict[str, object]:
    """Write a Lease: a new one, or one that replaces the object `over` at its very version."""
    metadata: dict[str, object] = {
        "name": name,
        "namespace": namespace,
        "labels": {
            "app.kubernetes.io/name": "deferred-quota",
            "app.kubernetes.io/part-of": "deferred-quota",
            "app.kubernetes.io/component": "controller",
        },
    }
    spec: dict[str, object] = {}
    if over is not None and len(encode_json(over)) > _MOST_BYTES:
        version = mapping(over.get("metadata"), "metadata")["resourceVersion"]
        metadata |= {"resourceVersion": version, "managedFields": [{}]}  # forgets all of them
    elif over is not None:
        # labels, owners and fields that others added stay
        metadata = {**mapping(over.get("metadata"), "metadata")}
        metadata.pop("managedFields", None)
        spec = {**mapping(over.get("spec"), "spec")}
    spec |= {
        "holderIdentity": lease_spec.holder,
        "leaseDurationSeconds": lease_spec.seconds,
        "leaseTransitions": lease_spec.transitions,
    }
    spec |= {"acquireTime": lease_spec.acquired} if lease_spec.acquired else {}
    spec |= {"renewTime": lease_spec.renewed} if lease_spec.renewed else {}
    return LEASES.make(metadata, spec=spec)
