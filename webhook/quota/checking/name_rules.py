"""Names of objects and containers, as the API server validates them.

Source: kubernetes v1.36, pkg/apis/core/validation/validation.go (ValidateObjectMeta,
validateContainerCommon) and apimachinery/pkg/util/validation. Names of Services are held to the
wider rule of most kinds: which one holds is decided by a feature gate.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Final

from webhook.jsonfields.fields import FieldError, child
from webhook.quota.objects.model import Pod
from webhook.quota.objects.names import dns_label_errors, object_name_errors

_NAME: Final = "metadata.name"
_LABELS: Final = frozenset({"namespaces"})
"""Resources whose names are DNS labels."""
_CRON_JOBS: Final = "cronjobs.batch"
_CRON_JOB_BYTES: Final = 52
"""Longest name of a CronJob: its Jobs get eleven characters more."""


def object_errors(resource: str, name: str) -> Iterator[FieldError]:
    """Yield what is wrong with the name of an object that the API server itself validates."""
    rule = dns_label_errors if resource in _LABELS else object_name_errors
    errors = rule(name)
    if resource == _CRON_JOBS and not errors and len(name) > _CRON_JOB_BYTES:
        errors = (f"must be no more than {_CRON_JOB_BYTES} characters",)
    for detail in errors:
        yield FieldError("FieldValueInvalid", _NAME, detail, _printed(name))


def container_errors(pod: Pod, field: str) -> Iterator[FieldError]:
    """Yield what is wrong with the names of a pod's containers.

    Args:
        pod: The pod.
        field: YAML path of its `spec`.
    """
    earlier: set[str] = set()
    for kind, containers in (
        ("containers", pod.containers),
        ("initContainers", pod.init_containers),
    ):
        names = [one.name for one in containers]
        yield from _errors_of(names, child(field, kind), earlier)


def has_good_containers(pod: Pod) -> bool:
    """Return whether nothing is wrong with the names of a pod's containers."""
    names = [one.name for one in (*pod.containers, *pod.init_containers)]
    return len(set(names)) == len(names) and not any(map(dns_label_errors, names))


def _errors_of(names: Sequence[str], field: str, earlier: set[str]) -> Iterator[FieldError]:
    for index, name in enumerate(names):
        place = f"{field}[{index}].name"
        if not name:
            yield FieldError("FieldValueRequired", place, "")
        elif errors := dns_label_errors(name):
            yield from (
                FieldError("FieldValueInvalid", place, detail, _printed(name)) for detail in errors
            )
        elif name in earlier:
            yield FieldError("FieldValueDuplicate", place, "", _printed(name))
        earlier.add(name)


def _printed(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)
