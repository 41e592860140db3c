"""`check` refuses fields of a pod, for their names and types, exactly where the API server does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, TypeAlias

from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster import objects
from tests.e2e.cluster.objects import Api
from webhook.jsonfields.fields import InvalidFieldError
from webhook.quota.checking.subjects import ManifestObject, ReadOptions, read_subject
from webhook.quota.checking.values import Terms
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


def structs(shape: Shape, path: Path = ()) -> Iterator[Path]:
    """Yield the objects whose fields are known."""
    if shape.members:
        yield path
    for name, member in shape.members.items():
        yield from structs(member, (*path, name))
    if shape.items is not None:
        yield from structs(shape.items, (*path, "[]"))


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


def test_unknown_fields_are_refused_in_the_words_of_the_api_server(plane: ControlPlane) -> None:
    api = Api(plane.rest)
    api.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    found = [path for path in structs(TEMPLATE_SHAPE) if path]
    assert len(found) > 100
    for path in found:
        pod = a_pod_with(path, {"odd": {}})
        said = api.call("POST", objects.pods(NAMESPACE), pod, fieldValidation="Strict")
        one = ManifestObject(pod, "pods", NAMESPACE, "a")
        issue = read_subject(one, Terms(), ReadOptions()).refusals[0]
        assert (said.code, said.message) == (400, issue.text.partition(";")[0])


def test_known_fields_are_not_refused_for_their_names(plane: ControlPlane) -> None:
    served = Api(plane.rest).get("/openapi/v2").body["definitions"]
    assert [*_missing(served, "io.k8s.api.core.v1.PodTemplateSpec", TEMPLATE_SHAPE)] == []


def _missing(served: dict[str, Any], model: str, shape: Shape, path: Path = ()) -> Iterator[Path]:
    """Yield the fields of the API server that no shape names, where the others are known."""
    for name, field in served[model].get("properties", {}).items() if shape.members else ():
        member = shape.members.get(name)
        if member is None:
            yield (*path, name)
            continue
        inner = member if member.items is None else member.items
        reference = field.get("items", field).get("$ref", "")
        if reference:
            yield from _missing(served, reference.rpartition("/")[2], inner, (*path, name))
