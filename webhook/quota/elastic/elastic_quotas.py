"""Elastic quotas as their owners write them.

```yaml
apiVersion: nos.nebuly.com/v1alpha1
kind: ElasticQuota    # of its namespace; a CompositeElasticQuota of `namespaces` together
metadata: {namespace: team-a, name: quota, labels: {deferredquota.io/pool: default}}
spec:
  min: {nos.nebuly.com/gpu-memory: 40}     # guaranteed; absent: nothing
  max: {nos.nebuly.com/gpu-memory: 80}     # absent: no ceiling
  lendable: {nos.nebuly.com/gpu-memory: 30}  # at most this much of min is lent; absent: all
  weight: 2                                # share of the spare; absent: min
  reclaim: {afterSeconds: 5, protectSeconds: 60}
```

A resource that only `max` names has a minimum of zero. One that neither names is not compared, nor
is one that no bind is charged for, such as `pods` (`is_charged`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Final

from webhook.jsonfields.fields import MOST_ERRORS, FieldError, InvalidFieldError
from webhook.jsonfields.fields import key as key_path
from webhook.quota.amounts.quantity import ZERO, Quantity
from webhook.quota.amounts.resource_reader import ResourceReader
from webhook.quota.amounts.resources import ResourceList, exceeding
from webhook.quota.charging.gpu_memory import DEFAULT_GB, GPU_MEMORY, gpu_memory, is_gpu_profile
from webhook.quota.charging.pod_usage import MANY_NAMES
from webhook.quota.objects.names import is_extended_resource, is_hugepages, object_name_errors

COMPOSITE: Final = "CompositeElasticQuota"
POOL_LABEL: Final = "deferredquota.io/pool"
DEFAULT_POOL: Final = "default"

_POOL_FIELD: Final = key_path("metadata.labels", POOL_LABEL)
_NO_DOTS: Final = ("must not contain dots",)
_COMPUTE: Final = frozenset({"cpu", "memory"})
_PLAIN: Final = _COMPUTE | {"ephemeral-storage", "pods"}
_NVIDIA: Final = "nvidia.com/"


@dataclass(frozen=True, slots=True)
class ElasticQuota:
    """A quota of one namespace, or of several as one."""

    kind: str
    namespace: str
    """Of the object."""
    name: str
    namespaces: tuple[str, ...]
    """Whose pods it counts, sorted."""
    min: ResourceList
    """What is guaranteed, as written; of what only `max` names it is zero."""
    max: ResourceList
    lendable: ResourceList
    """What of min is lent at most; a resource that is missing is lent whole."""
    weight: Quantity | None
    pool: str
    protect_seconds: int
    """How long its pods are not evicted after they were bound."""
    after_seconds: int | None = None
    """How long its pods wait before others are evicted for them; None is as configured."""
    created: str = ""
    """Time of creation, as the API server writes it; empty if it is not stored yet."""

    @property
    def account(self) -> str:
        """Return the name in ledgers and messages: `eq/NAME` or `ceq/NAMESPACE/NAME`."""
        if self.kind == COMPOSITE:
            return f"ceq/{self.namespace}/{self.name}"
        return f"eq/{self.name}"

    @property
    def names(self) -> frozenset[str]:
        """Return the resources that the quota names."""
        return frozenset((*self.min, *self.max))

    @property
    def key(self) -> str:
        """Return "kind namespace/name", which no other quota has."""
        return f"{self.kind} {self.namespace}/{self.name}"


def read_elastic_quota(raw: Mapping[str, object]) -> ElasticQuota:
    """Read an elastic quota from its API object, all but its status.

    Raises:
        InvalidFieldError: A field has the wrong type, or `elastic_quota_errors` has one.
        InvalidQuantityError: An amount is not a quantity.
    """
    quota = _read(raw)
    for error in _errors_of(quota):
        raise InvalidFieldError(error.field, error.message)
    return quota


def read_stored_quota(raw: Mapping[str, object]) -> ElasticQuota:
    """Read an elastic quota that is stored; where it makes no sense, what limits more counts.

    An API server stores what no handler was asked about, in namespaces that have not opted in, or
    while none answers. An edit lifts no limit by making no sense: `min` counts up to `max`,
    `lendable` up to `min`, and a pool that cannot be is the default one.

    Raises:
        InvalidFieldError: A field has the wrong type, or it counts no namespace: the definition of
            nos allows that, and a selector of none cannot be read.
        InvalidQuantityError: An amount is not a quantity.
    """
    quota = _read(raw)
    errors = _errors_of(quota)
    if not errors:
        return quota
    if not quota.namespaces:
        raise InvalidFieldError(errors[0].field, errors[0].message)
    ceilings = {name: max(ZERO, amount) for name, amount in quota.max.items()}
    least = {
        name: max(ZERO, min(amount, ceilings.get(name, amount)))
        for name, amount in quota.min.items()
    }
    return replace(
        quota,
        namespaces=tuple(sorted(set(quota.namespaces))),
        min=least,
        max=ceilings,
        lendable={
            name: max(ZERO, min(amount, least.get(name, ZERO)))
            for name, amount in quota.lendable.items()
        },
        weight=None if quota.weight is None else max(ZERO, quota.weight),
        pool=DEFAULT_POOL if _pool_faults(quota.pool) else quota.pool,
        protect_seconds=max(0, quota.protect_seconds),
        after_seconds=None if quota.after_seconds is None else max(0, quota.after_seconds),
    )


def _read(raw: Mapping[str, object]) -> ElasticQuota:
    node = ResourceReader(raw)
    meta, spec = node.child("metadata"), node.child("spec")
    kind, namespace = node.text("kind"), meta.text("namespace")
    listed = tuple(sorted(spec.strings("namespaces")))
    return ElasticQuota(
        kind=kind,
        namespace=namespace,
        name=meta.text("name"),
        namespaces=listed if kind == COMPOSITE else (namespace,),
        min=spec.resource_list("min"),
        max=spec.resource_list("max"),
        lendable=spec.resource_list("lendable"),
        weight=spec.quantity("weight"),
        pool=meta.string_map("labels").get(POOL_LABEL) or DEFAULT_POOL,
        protect_seconds=spec.child("reclaim").integer("protectSeconds") or 0,
        after_seconds=spec.child("reclaim").integer("afterSeconds"),
        created=meta.text("creationTimestamp"),
    )


def elastic_quota_errors(raw: Mapping[str, object]) -> list[FieldError]:
    """List what is wrong with an elastic quota, whatever other objects there are."""
    try:
        quota = _read(raw)
    except InvalidFieldError as err:
        return [FieldError("FieldValueInvalid", err.field, err.detail)]
    return _errors_of(quota)


def _errors_of(quota: ElasticQuota) -> list[FieldError]:
    errors = chain(_namespace_errors(quota), _amount_errors(quota), _setting_errors(quota))
    return [*islice(errors, MOST_ERRORS)]


def _namespace_errors(quota: ElasticQuota) -> Iterator[FieldError]:
    if not quota.namespaces:
        yield FieldError("FieldValueRequired", "spec.namespaces", "must name at least one")
    # counted once for all: a review, which any client can post, may name half a million
    for namespace, times in Counter(quota.namespaces).items():
        if times > 1:
            yield FieldError("FieldValueDuplicate", "spec.namespaces", "", f'"{namespace}"')


def _amount_errors(quota: ElasticQuota) -> Iterator[FieldError]:
    for field in ("min", "max", "lendable"):
        amounts: ResourceList = getattr(quota, field)
        for name, amount in sorted(amounts.items()):
            if amount.sign < 0:
                detail = "must be greater than or equal to 0"
                yield FieldError(
                    "FieldValueInvalid", f"spec.{field}[{name}]", detail, f'"{amount}"'
                )
    for name in exceeding(quota.min, quota.max):
        detail = f"must be less than or equal to spec.max[{name}], which is {quota.max[name]}"
        yield FieldError("FieldValueInvalid", f"spec.min[{name}]", detail, f'"{quota.min[name]}"')
    for name, amount in sorted(quota.lendable.items()):
        least = quota.min.get(name, ZERO)
        if amount > least:
            detail = f"must be less than or equal to spec.min[{name}], which is {least}"
            yield FieldError("FieldValueInvalid", f"spec.lendable[{name}]", detail, f'"{amount}"')


def _setting_errors(quota: ElasticQuota) -> Iterator[FieldError]:
    detail = "must be greater than or equal to 0"
    if quota.weight is not None and quota.weight.sign < 0:
        yield FieldError("FieldValueInvalid", "spec.weight", detail, str(quota.weight))
    for fault in _pool_faults(quota.pool)[:1]:
        yield FieldError("FieldValueInvalid", _POOL_FIELD, fault, f'"{quota.pool}"')
    given = {"protectSeconds": quota.protect_seconds, "afterSeconds": quota.after_seconds or 0}
    for name, seconds in given.items():
        if seconds < 0:
            yield FieldError("FieldValueInvalid", f"spec.reclaim.{name}", detail, str(seconds))


def _pool_faults(pool: str) -> tuple[str, ...]:
    """Return why an object, which the pool is charged by, cannot have its name."""
    return (*object_name_errors(pool), *(_NO_DOTS if "." in pool else ()))


def unknown_resources(quota: ElasticQuota) -> tuple[str, ...]:
    """Return the resources that a quota names and no pod is ever charged, sorted."""
    return tuple(sorted(name for name in quota.names if not _is_known(name)))


def unknown_resource_text(name: str) -> str:
    """Return what is wrong with the name of such a resource; that of a ResourceQuota's key."""
    resource = name.removeprefix("requests.")
    text = f"{name}: no pod asks for a resource of this name"
    return f"{text}; write {resource}" if resource != name and _is_known(resource) else text


def _is_known(name: str) -> bool:
    if name in _PLAIN or name == GPU_MEMORY or is_hugepages(name):
        return True
    if name.startswith((f"{_NVIDIA}mig-", f"{_NVIDIA}gpu-")):
        return is_gpu_profile(name)
    return is_extended_resource(name)


def is_charged(resource: str) -> bool:
    """Return whether binds are charged for a resource, as elastic quotas name it."""
    return resource in _COMPUTE or is_extended_resource(resource)


def charge(usage: ResourceList, names: Iterable[str], gb_per_gpu: int = DEFAULT_GB) -> ResourceList:
    """Return what a pod takes of the resources that quotas name; only what it asks for.

    Nothing of what no bind is charged for: a pod that was evicted for it would be bound again at
    once, and no bind waits for it. A pod of too many names takes more of each extended resource
    than can be counted, as binds see it: it goes first.

    Args:
        usage: The charge of the pod, by quota key.
        names: Resources as `spec.min` and `spec.max` name them.
        gb_per_gpu: Memory of a whole GPU, GB.
    """
    found: dict[str, Quantity] = {}
    for name in filter(is_charged, names):
        amount: Quantity | None
        if MANY_NAMES in usage and name not in _COMPUTE:
            amount = usage[MANY_NAMES]
        elif name == GPU_MEMORY:
            memory = gpu_memory(usage, gb_per_gpu)
            amount = None if memory is None else memory.amount
        else:
            amount = usage.get(name, usage.get(f"requests.{name}"))
        if amount is not None and amount.sign > 0:
            found[name] = amount
    return found


def taken_errors(quota: ElasticQuota, every: Iterable[ElasticQuota]) -> Iterator[FieldError]:
    """Yield an error for each namespace of a quota that has another elastic quota."""
    others = {
        name: one for one in every if one.key != quota.key for name in reversed(one.namespaces)
    }
    for index, name in enumerate(quota.namespaces):
        if name in others:
            other = others[name]
            field = "metadata.namespace"
            if quota.kind == COMPOSITE:
                field = f"spec.namespaces[{index}]"
            yield FieldError(
                "FieldValueForbidden",
                field,
                f"namespace {name} has {other.key} already: change that one, or {_deletion(other)}"
                " first",
            )


def conflicts(quotas: Iterable[ElasticQuota]) -> dict[str, str]:
    """Return the quotas that count a namespace which another counts: key → the fault.

    The other is the older one, of those of one second the one that comes first by key: it stays,
    so that no one takes the namespaces of others by a new quota.
    """
    first: dict[str, ElasticQuota] = {}
    faults: dict[str, str] = {}
    for quota in sorted(quotas, key=lambda one: (one.created, one.key)):
        taken = [name for name in quota.namespaces if name in first]
        if not taken:
            first.update(dict.fromkeys(quota.namespaces, quota))
            continue
        other = first[taken[0]]
        faults[quota.key] = (
            f"namespace {taken[0]} has {other.key} already, and a namespace has one elastic"
            f" quota: delete one of them, this one with {_deletion(quota)}"
        )
    return faults


def _deletion(quota: ElasticQuota) -> str:
    return f"kubectl delete -n {quota.namespace} {quota.kind.lower()} {quota.name}"
