"""`check` refuses a value of a pod's field for its type exactly where the API server does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, TypeAlias

from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster import objects
from tests.e2e.cluster.objects import Api
from webhook.jsonfields.fields import InvalidFieldError
from webhook.quota.jobs.equality import Shape, check_types
from webhook.quota.jobs.job_fields import TEMPLATE_SHAPE

NAMESPACE: Final = "e2e-field-types"
VALUES: Final[tuple[object, ...]] = (True, 1, "x", [], {}, ["x"], {"a": "b"})
CONTAINER: Final = {"name": "a", "image": "x"}
Path: TypeAlias = tuple[str, ...]
"""Names of fields; `[]` is the first item of a list."""


def leaves(shape: Shape, path: Path = ()) -> Iterator[tuple[Path, Shape]]:
    """Yield the fields whose type is known."""
    for name, member in shape.members.items():
        yield from leaves(member, (*path, name))
    if shape.items is not None:
        yield from leaves(shape.items, (*path, "[]"))
    if shape.read is not None or shape.check is not None:
        yield path, shape


def a_pod_with(path: Path, value: Any) -> dict[str, Any]:
    for step in reversed(path[1:]):
        value = [value] if step == "[]" else {step: value}
    pod: dict[str, Any] = {"metadata": {"name": "a"}, "spec": {"containers": [CONTAINER]}}
    pod[path[0]] |= value
    return {"apiVersion": "v1", "kind": "Pod", **pod}


def is_readable(value: object, shape: Shape) -> bool:
    try:
        check_types(value, "", shape)
    except InvalidFieldError:
        return False
    return True


def test_types_are_those_of_the_api_server(plane: ControlPlane) -> None:
    api = Api(plane.rest)
    api.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    known = [one for one in leaves(TEMPLATE_SHAPE) if one[0] != ("metadata", "namespace")]
    assert len(known) > 500
    others = [
        (path, value)
        for path, shape in known
        for value in VALUES
        if is_readable(value, shape)
        is (api.create(objects.pods(NAMESPACE), a_pod_with(path, value), dry_run=True).code == 400)
    ]
    assert others == []
