"""Changes of the resources of each container by an update: what grows, what shrinks.

A request that is left out is the limit, if there is one, and nothing otherwise: so does the API
server fill in pods. A limit that is left out is none:

| the amount | growth | shrink | asks more of a quota |
| --- | --- | --- | --- |
| a request or a limit becomes more | yes | no | yes |
| a request or a limit becomes less | no | yes | no |
| a limit is taken away: the container can take more, no limit is charged | yes | no | no |
| a limit is added: the container has what it had, the limit is charged | no | no | yes |
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from webhook.jsonfields.fields import child, key
from webhook.quota.amounts.quantity import ZERO, Quantity
from webhook.quota.amounts.resource_reader import StoredResourceReader
from webhook.quota.amounts.resources import ResourceList
from webhook.quota.objects.names import is_hugepages

_Members: TypeAlias = Mapping[str, object]
_Lists: TypeAlias = Mapping[str, ResourceList]

_POD: Final = "spec.template.spec"
_COMPUTE: Final = frozenset({"cpu", "memory", "ephemeral-storage"})


@dataclass(frozen=True, slots=True)
class Resize:
    """One amount of one container that changes; None is no limit."""

    field: str
    """YAML path, as `spec.template.spec.containers[0].resources.requests.cpu`."""
    resource: str
    is_limit: bool
    before: Quantity | None
    after: Quantity | None

    @property
    def is_growth(self) -> bool:
        """Whether the container can take more than before."""
        if self.before is None:
            return False
        return self.after is None or self.after > self.before

    @property
    def is_shrink(self) -> bool:
        """Whether the container has less than before; a limit that is added takes nothing."""
        return self.before is not None and self.after is not None and self.after < self.before

    @property
    def asks_more(self) -> bool:
        """Whether more is asked of a quota than before."""
        if self.after is None:
            return False
        return self.before is None or self.after > self.before

    @property
    def quota_keys(self) -> tuple[str, ...]:
        """The keys of a quota under which the amount is charged."""
        if self.is_limit:
            return (f"limits.{self.resource}",) if self.resource in _COMPUTE else ()
        plain = self.resource in _COMPUTE or is_hugepages(self.resource)
        return (
            *((self.resource,) if plain else ()),
            f"requests.{self.resource}",
        )

    @property
    def text(self) -> str:
        """Return what became of the amount: `from 500m to 2`."""
        return f"from {_shown(self.before)} to {_shown(self.after)}"


def resizes_of(old: _Members, new: _Members) -> tuple[Resize, ...]:
    """Return what changes in the resources of containers, in the order of the new template.

    An amount that is too large to be read is more than any other: a Job with one, in whichever
    container, is held to the rules like any.

    Args:
        old: The stored Job.
        new: The Job of an update that the API server takes: it has the same containers.

    Raises:
        InvalidFieldError: A field has the wrong type.
        InvalidQuantityError: An amount is not a quantity.
    """
    before = dict(_resources(old, "old"))
    return tuple(
        resize
        for path, lists in _resources(new, "")
        if path in before
        for resize in _resizes(before[path], lists, path)
    )


def _resizes(old: _Lists, new: _Lists, path: str) -> Iterator[Resize]:
    for name in ("requests", "limits"):
        is_limit = name == "limits"
        before, after = (_effective(lists, is_limit=is_limit) for lists in (old, new))
        for resource in sorted({*before, *after}):
            nothing = None if is_limit else ZERO
            one, other = before.get(resource, nothing), after.get(resource, nothing)
            if one != other:
                field = key(child(path, name), resource)
                yield Resize(field, resource, is_limit, one, other)


def _effective(lists: _Lists, *, is_limit: bool) -> ResourceList:
    return lists["limits"] if is_limit else {**lists["limits"], **lists["requests"]}


def _resources(job: _Members, root: str) -> Iterator[tuple[str, _Lists]]:
    """Yield the resources of each container with their path in the Job."""
    pod = StoredResourceReader(job, root).child("spec").child("template").child("spec")
    for name in ("containers", "initContainers"):
        for index, container in enumerate(pod.children(name)):
            resources = container.child("resources")
            lists = {kind: resources.resource_list(kind) for kind in ("requests", "limits")}
            yield f"{_POD}.{name}[{index}].resources", lists


def _shown(amount: Quantity | None) -> str:
    return "none" if amount is None else str(amount)
