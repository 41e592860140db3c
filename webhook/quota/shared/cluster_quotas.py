"""A quota that several namespaces share: a ClusterDeferredQuota as its owner wrote it.

```yaml
kind: ClusterDeferredQuota
metadata: {name: both}
spec:
  namespaceSelector: {matchLabels: {team: web}}   # {} selects every namespace
  hard: {requests.cpu: "20"}
  scopes: [NotTerminating]                        # and scopeSelector, as in a ResourceQuota
  kept:                                           # of hard, for these namespaces alone
  - {namespaces: [team-a], amounts: {requests.cpu: "4"}}
  headroom:                                       # up to what these may hold unused
  - {namespaces: [team-a], amounts: {requests.cpu: "10"}}
```

In the ledger of each namespace it is one more quota, by a name that no ResourceQuota can have
(`cdq/both`). What its status says is in `grants`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Final, TypeAlias

from webhook.jsonfields.fields import InvalidFieldError
from webhook.jsonfields.reader import FieldReader
from webhook.quota.amounts.resource_reader import ResourceReader
from webhook.quota.amounts.resources import ResourceList
from webhook.quota.ledger.reservation_codec import check_positive
from webhook.quota.objects.label_selectors import LabelSelector, read_label_selector
from webhook.quota.objects.model import ResourceQuota
from webhook.quota.objects.names import SHARED_PREFIX

NAMESPACE_NAME_LABEL: Final = "kubernetes.io/metadata.name"
"""What the API server writes on every namespace."""

_SELECTOR: Final = "spec.namespaceSelector"


@dataclass(frozen=True, slots=True)
class QuotaPart:
    """A part of a shared quota that some namespaces have together."""

    namespaces: frozenset[str]
    amounts: ResourceList


@dataclass(frozen=True, slots=True)
class ClusterQuota:
    """A shared quota whose spec can be read."""

    name: str
    uid: str
    selector: LabelSelector
    """Which namespaces share it, of those that have opted in."""
    quota: ResourceQuota
    """Its ceilings and scopes, under the name that it has in ledgers. Which namespaces it selects
    is part of its hash: what is counted for it depends on that too."""
    kept: tuple[QuotaPart, ...] = ()
    """What is for its namespaces alone, whether they use it or not. No part of the hash: what is
    counted does not depend on it."""
    headroom: tuple[QuotaPart, ...] = ()
    """Up to what its namespaces may hold without using it. No part of the hash either."""

    def selects(self, labels: Mapping[str, str]) -> bool:
        """Return whether a namespace with these labels shares it."""
        return self.selector.matches(labels)

    @property
    def is_of_one(self) -> bool:
        """Whether its spec names the only namespace that can share it."""
        return any(
            one.key == NAMESPACE_NAME_LABEL and one.operator == "In" and len(one.values) == 1
            for one in self.selector.requirements
        )

    def is_same(self, other: object) -> bool:
        """Return whether both are one object with one spec."""
        return (
            isinstance(other, ClusterQuota)
            and self.uid == other.uid
            and self.quota.spec_hash == other.quota.spec_hash
        )


@dataclass(frozen=True, slots=True)
class UnreadableClusterQuota:
    """A shared quota whose spec cannot be read: it is not known what it limits."""

    name: str
    uid: str
    selector: LabelSelector | None
    """Which namespaces share it; None when that cannot be read either."""
    fault: str

    def selects(self, labels: Mapping[str, str]) -> bool:
        """Return whether a namespace with these labels may share it."""
        return self.selector is None or self.selector.matches(labels)

    def is_same(self, other: object) -> bool:
        """Return whether both are the same."""
        return self == other


ClusterQuotaSpec: TypeAlias = ClusterQuota | UnreadableClusterQuota
"""What the owner of a shared quota wrote."""


def named_namespaces(quota: ClusterQuotaSpec) -> tuple[str, ...] | None:
    """Return the namespaces that a quota names, where it can select no other; else None."""
    requirements = () if quota.selector is None else quota.selector.requirements
    for one in requirements:
        if one.key == NAMESPACE_NAME_LABEL and one.operator == "In":
            return one.values
    return None


def ledger_name(name: str) -> str:
    """Return the name in ledgers of the shared quota `name`."""
    return SHARED_PREFIX + name


def own_name(name: str) -> str:
    """Return the object's name of a shared quota that ledgers know as `name`."""
    return name.removeprefix(SHARED_PREFIX)


def cluster_quota(raw: Mapping[str, object]) -> ClusterQuota:
    """Read a ClusterDeferredQuota from its API object, all but its status.

    Raises:
        InvalidFieldError: A field is missing, has the wrong type, or is no selector.
        InvalidQuantityError: An amount is not a quantity.
    """
    selector = _selector(raw)
    read = ResourceQuota.from_object({**raw, "status": None})
    quota = replace(read, namespace="", name=ledger_name(read.name), annotations={})
    object.__setattr__(quota, "_spec_hash", _spec_hash(read, selector))
    kept, headroom = read_parts(raw, "kept"), read_parts(raw, "headroom")
    return ClusterQuota(read.name, read.uid, selector, quota, kept, headroom)


def read_parts(raw: Mapping[str, object], name: str) -> tuple[QuotaPart, ...]:
    """Read the parts of a ClusterDeferredQuota in a field of its spec: `kept` or `headroom`.

    Raises:
        InvalidFieldError: A part names no namespace, or an amount that is less than nothing.
        InvalidQuantityError: An amount is not a quantity.
    """
    return tuple(map(_part, ResourceReader(raw).child("spec").children(name)))


def _part(part: ResourceReader) -> QuotaPart:
    namespaces, amounts = part.strings("namespaces"), part.resource_list("amounts")
    if not namespaces:
        raise InvalidFieldError(part.path("namespaces"), "must name at least one")
    check_positive(amounts, part.path("amounts"))
    return QuotaPart(frozenset(namespaces), amounts)


def cluster_quota_or_fault(raw: Mapping[str, object]) -> ClusterQuota | UnreadableClusterQuota:
    """Read a ClusterDeferredQuota, or its namespaces and why the rest cannot be read.

    Raises:
        InvalidFieldError: Not even its name can be read.
    """
    try:
        return cluster_quota(raw)
    except InvalidFieldError as err:
        metadata = FieldReader(raw).child("metadata")
        return UnreadableClusterQuota(
            metadata.text("name"), metadata.text("uid"), _selector_if_readable(raw), str(err)
        )


def _selector(raw: Mapping[str, object]) -> LabelSelector:
    spec = FieldReader(raw).child("spec")
    spec.child("namespaceSelector")  # has to be an object
    given = raw.get("spec")
    found = given.get("namespaceSelector") if isinstance(given, Mapping) else None
    selector = read_label_selector(found, _SELECTOR)
    if selector is None:
        raise InvalidFieldError(_SELECTOR, "must be given; {} selects every namespace")
    for index, one in enumerate(selector.requirements):
        if not one.is_valid:
            field = f"{_SELECTOR}.matchExpressions[{index}]"
            raise InvalidFieldError(field, "is no valid label selector requirement")
    return selector


def _selector_if_readable(raw: Mapping[str, object]) -> LabelSelector | None:
    try:
        return _selector(raw)
    except InvalidFieldError:
        return None


def _spec_hash(read: ResourceQuota, selector: LabelSelector) -> str:
    meaning = (
        read.spec_hash,
        sorted(selector.labels.items()),
        [(one.key, one.operator, one.values) for one in selector.requirements],
    )
    return sha256(ascii(meaning).encode()).hexdigest()[:32]
