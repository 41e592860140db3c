"""Pod templates of kinds that are not known, found by YAML paths that the caller gives.

`RayCluster.ray.io=spec.workerGroupSpecs[*].template:replicas` is: for a RayCluster, every template
under that path, as many pods of each as `replicas` beside it says.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from webhook.jsonfields.fields import InvalidFieldError, child, mapping, sequence
from webhook.jsonfields.reader import FieldReader
from webhook.quota.charging.workload_pods import PodSet, require_container

_Object = Mapping[str, object]

_MOST = 2**31 - 1
_ALL = "[*]"
_SYNTAX = frozenset(".:[")
"""Characters that end the name of a field in a path."""
_DEEPEST = 12
"""Levels of an object in which templates are looked for."""


class TemplatePathError(ValueError):
    """A path of the caller's cannot be read."""


@dataclass(frozen=True, slots=True)
class TemplatePath:
    """Places of pod templates in a kind."""

    kind: str
    group: str
    """None of them if empty: any group."""
    steps: tuple[str, ...]
    """Names of fields; one that ends in `[*]` is a list, all items of which are meant."""
    count: tuple[str, ...] = ()
    """Path of the number of pods from the object that holds the template; without it, one."""

    @classmethod
    def parse(cls, text: str) -> TemplatePath:
        """Read `KIND[.GROUP]=PATH[:COUNT]`.

        Raises:
            TemplatePathError: It has another form.
        """
        named, equals, path = text.partition("=")
        kind, _, group = named.partition(".")
        template, _, count = path.partition(":")
        steps = tuple(template.split(".")) if template else ()
        counted = tuple(count.split(".")) if count else ()
        if not (kind and equals and steps and all((*steps, *counted))):
            raise TemplatePathError(f"{text}: must be KIND[.GROUP]=PATH[:COUNT]")
        return cls(kind, group, steps, counted)

    @property
    def place(self) -> str:
        """The path as it is written, without the kind."""
        return ":".join(".".join(names) for names in (self.steps, self.count) if names)

    def is_about(self, group: str, kind: str) -> bool:
        """Return whether objects of a kind have such templates."""
        return kind == self.kind and self.group in {"", group}


def pods_by_path(
    raw: _Object, paths: Iterable[TemplatePath], *, field: str = ""
) -> tuple[PodSet, ...]:
    """Return the pods of an object by the paths that are about it.

    Raises:
        InvalidFieldError: There is no template at a path, or no container in it, or a number of
            pods cannot be read.
    """
    return tuple(pods for path in paths for pods in _pods(raw, path, field))


def template_places(raw: _Object) -> tuple[str, ...]:
    """Return where an object seems to have pod templates, in the form that `TemplatePath` reads.

    Places to which no path leads are one empty text.
    """
    counted: dict[tuple[str, ...], bool] = {}
    for steps, is_counted in _places(raw, (), _DEEPEST):
        counted[steps] = counted.get(steps, False) or is_counted
    paths = (
        TemplatePath("", "", steps, ("replicas",) * is_counted)
        for steps, is_counted in counted.items()
    )
    texts = (path.place if _reads(path, raw) else "" for path in paths)
    return tuple(dict.fromkeys(texts))


def _reads(path: TemplatePath, raw: _Object) -> bool:
    """Return whether a path can be written, and all of an object's pods under it can be read.

    A path that leads to a template in some items of a list only makes the object unreadable.
    """
    try:
        return all(path.steps) and bool(pods_by_path(raw, [path]))
    except InvalidFieldError:
        return False


def _places(
    holder: _Object, steps: tuple[str, ...], levels: int
) -> Iterator[tuple[tuple[str, ...], bool]]:
    """Yield the steps to each template, and whether a number of pods stands beside it.

    A field that has no place in a path, for its name, is an empty step.
    """
    for name, value in holder.items() if levels else ():
        items, step = (value, f"{name}{_ALL}") if isinstance(value, list) else ([value], name)
        way = (*steps, step if _is_plain(name) else "")
        for item in items:
            if not isinstance(item, Mapping):
                continue
            if _is_template(item):
                replicas = holder.get("replicas")
                yield way, isinstance(replicas, int) and not isinstance(replicas, bool)
            else:
                yield from _places(item, way, levels - 1)


def _is_plain(name: str) -> bool:
    return bool(name) and name.isprintable() and _SYNTAX.isdisjoint(name)


def _is_template(value: _Object) -> bool:
    spec = value.get("spec")
    containers = spec.get("containers") if isinstance(spec, Mapping) else None
    return isinstance(containers, list) and any(
        isinstance(one, Mapping) and "image" in one for one in containers
    )


def _pods(raw: _Object, path: TemplatePath, field: str) -> Iterator[PodSet]:
    meta = FieldReader(raw, field).child("metadata")
    identity = {"namespace": meta.text("namespace"), "generateName": f"{meta.text('name')}-"}
    for holder, where, template, place in _templates(raw, path.steps, field):
        require_container(template, place)
        made = mapping(template.get("metadata"), child(place, "metadata"))
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {**made, "name": None, **identity},
            "spec": template.get("spec"),
        }
        yield PodSet(_count(holder, path.count, where), pod, place)


def _templates(
    raw: _Object, steps: tuple[str, ...], field: str
) -> Iterator[tuple[_Object, str, _Object, str]]:
    """Yield each template with the object that holds it, and the paths of both."""
    step, rest = steps[0], steps[1:]
    name = step.removesuffix(_ALL)
    place = child(field, name)
    found: list[tuple[object, str]] = [(raw.get(name), place)]
    if step.endswith(_ALL):
        items = sequence(raw.get(name), place)
        found = [(item, f"{place}[{index}]") for index, item in enumerate(items)]
    for value, where in found:
        if value is None:
            raise InvalidFieldError(where, "required")
        inner = mapping(value, where)
        if rest:
            yield from _templates(inner, rest, where)
        else:
            yield raw, field, inner, where


def _count(holder: _Object, path: tuple[str, ...], field: str) -> int:
    if not path:
        return 1
    reader = FieldReader(holder, field)
    for name in path[:-1]:
        reader = reader.child(name)
    value = reader.integer(path[-1])
    if value is None:
        return 1
    if not 0 <= value <= _MOST:
        raise InvalidFieldError(reader.path(path[-1]), f"must be from 0 to {_MOST}, not {value}")
    return value
