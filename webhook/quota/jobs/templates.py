"""The pod template of a Job: what it says, and which of its changes pass an update.

Source: kubernetes v1.36, pkg/apis/batch/validation/validation.go validatePodTemplateUpdate.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from webhook.jsonfields.fields import FieldError, InvalidFieldError, child, mapping, sequence
from webhook.quota.jobs.equality import canonical_members
from webhook.quota.jobs.job_fields import JOB_SHAPE, TEMPLATE_SHAPE

_Members: TypeAlias = Mapping[str, object]

TEMPLATE: Final = "spec.template"
_IMMUTABLE: Final = "field is immutable"
_CONTAINER_LISTS: Final = ("containers", "initContainers")
_DIRECTIVES: Final = ("nodeSelector", "tolerations", "schedulingGates")


@dataclass(frozen=True, slots=True)
class JobTemplate:
    """A pod template by meaning: equal ones are equal for the API server."""

    metadata: _Members
    spec: _Members
    others: _Members
    """Members that no pod template has."""


def read_job_template(raw: object, field: str) -> JobTemplate:
    """Read a pod template.

    Raises:
        InvalidFieldError: It is missing, or a field has the wrong type.
        InvalidQuantityError: An amount is not a quantity.
    """
    if raw is None:
        raise InvalidFieldError(field, "is required")
    members = mapping(raw, field)
    others = {key: value for key, value in members.items() if key not in {"metadata", "spec"}}
    metadata = TEMPLATE_SHAPE.members["metadata"]
    return JobTemplate(
        canonical_members(members.get("metadata"), child(field, "metadata"), metadata),
        _read_spec(mapping(members.get("spec"), child(field, "spec")), child(field, "spec")),
        canonical_members(others, field),
    )


def template_errors(
    old: JobTemplate, new: JobTemplate, *, resources: bool, scheduling: bool
) -> list[FieldError]:
    """Return the error of an update that changes what it may not; none is an empty list.

    Args:
        old: The stored template.
        new: The template of the update.
        resources: Whether `resources` of containers may change. Nothing but the spec is
            compared then, so that changes of the template's metadata pass as well.
        scheduling: Whether scheduling directives may change: node selector, node affinity,
            tolerations, scheduling gates, labels and annotations.
    """
    if expected_template(old, new, resources=resources, scheduling=scheduling) == new:
        return []
    return [_immutable(f"{TEMPLATE}.spec" if resources else TEMPLATE)]


def expected_template(
    old: JobTemplate, new: JobTemplate, *, resources: bool, scheduling: bool
) -> JobTemplate:
    """Return the stored template with all those changes of the new one that pass.

    The update passes if the new template is equal to it; where it is not, it has changed what it
    may not. The arguments are those of `template_errors`.
    """
    expected = _with_directives(old, new) if scheduling else old
    if not resources:
        return expected
    spec = _with_container_resources(expected.spec, new.spec)
    return replace(new, spec=spec)


def immutable_errors(old: _Members, new: _Members, names: Iterable[str]) -> list[FieldError]:
    """Return an error for each of the named members of a Job's spec that differs by meaning."""
    before = canonical_members(_only(old, names), "old.spec", JOB_SHAPE)
    after = canonical_members(_only(new, names), "spec", JOB_SHAPE)
    return [_immutable(f"spec.{name}") for name in names if before.get(name) != after.get(name)]


def _read_spec(raw: _Members, field: str) -> _Members:
    _check_containers(raw, field)
    mapping(raw.get("affinity"), child(field, "affinity"))
    return canonical_members(raw, field, TEMPLATE_SHAPE.members["spec"])


def _check_containers(spec: _Members, field: str) -> None:
    for name in _CONTAINER_LISTS:
        path = child(field, name)
        for index, container in enumerate(sequence(spec.get(name), path)):
            mapping(container, f"{path}[{index}]")


def _with_directives(old: JobTemplate, new: JobTemplate) -> JobTemplate:
    spec = _taken_over(old.spec, new.spec, _DIRECTIVES)
    affinity = _with_node_affinity(old.spec.get("affinity"), new.spec.get("affinity"))
    spec = _taken_over(spec, {"affinity": affinity} if affinity is not None else {}, ("affinity",))
    metadata = _taken_over(old.metadata, new.metadata, ("annotations", "labels"))
    return replace(old, metadata=metadata, spec=spec)


def _with_node_affinity(old: object, new: object) -> _Members | None:
    """Return the old affinity with the new node affinity; None where nothing is left of it."""
    before = old if isinstance(old, Mapping) else {}
    if isinstance(new, Mapping):
        return _taken_over(before, new, ("nodeAffinity",))
    return _taken_over(before, {}, ("nodeAffinity",)) or None


def _with_container_resources(old: _Members, new: _Members) -> _Members:
    lists = {name: _with_resources(old.get(name), new.get(name)) for name in _CONTAINER_LISTS}
    return _taken_over(old, lists, [name for name in lists if name in old])


def _with_resources(old: object, new: object) -> object:
    if not (isinstance(old, list) and isinstance(new, list) and len(old) == len(new)):
        return old
    return [_with_same_resources(*pair) for pair in zip(old, new, strict=True)]


def _with_same_resources(old: object, new: object) -> object:
    if not (isinstance(old, Mapping) and isinstance(new, Mapping)):
        return old
    # containers of other names differ anyway
    return _taken_over(old, new, ("resources",))


def _taken_over(old: _Members, new: _Members, names: Iterable[str]) -> dict[str, object]:
    """Return `old` with the named members of `new`, without those that `new` does not have."""
    return {key: value for key, value in old.items() if key not in names} | _only(new, names)


def _only(members: _Members, names: Iterable[str]) -> dict[str, object]:
    return {name: members[name] for name in names if name in members}


def _immutable(field: str) -> FieldError:
    return FieldError("FieldValueInvalid", field, _IMMUTABLE)
