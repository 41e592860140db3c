"""Differences of two pod templates, field by field, and how to print them.

Two values differ when the API server takes them for different; see `equality`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from webhook.jsonfields.fields import child, key
from webhook.quota.amounts.quantity import Quantity
from webhook.quota.jobs.templates import TEMPLATE, JobTemplate, expected_template

_MAPS: Final = frozenset(
    {"annotations", "labels", "limits", "matchLabels", "nodeSelector", "overhead", "requests"}
)
"""Fields whose members are keys that people choose, not names of fields."""
_DESCENDED: Final = _MAPS | {"affinity", "metadata", "resources"}
"""Objects of which each member is listed, also where the whole object is new or gone."""
_PRIVATE: Final = frozenset({"annotations", "args", "command", "env"})
"""Where people keep what should not be read in logs and messages."""
_MOST_CHARACTERS: Final = 60


@dataclass(frozen=True, slots=True)
class Change:
    """One field that an update changes."""

    field: str
    """YAML path, as `spec.template.spec.containers[0].image`."""
    before: object
    """The stored value by meaning; None where there is none."""
    after: object
    is_private: bool = False
    """Whether the values are not to be printed."""

    @property
    def text(self) -> str:
        """Return what became of the value: `from 500m to 2`."""
        if self.is_private:
            return "another value"
        return f"from {shown(self.before)} to {shown(self.after)}"


def refused_changes(
    old: JobTemplate, new: JobTemplate, *, resources: bool, scheduling: bool
) -> tuple[Change, ...]:
    """Return the changes for which an update does not pass, in the order of their paths.

    The arguments are those of `templates.template_errors`.
    """
    expected = expected_template(old, new, resources=resources, scheduling=scheduling)
    return tuple(template_changes(expected, new))


def template_changes(old: JobTemplate, new: JobTemplate) -> Iterator[Change]:
    """Yield what differs between two templates."""
    yield from differences(old.metadata, new.metadata, f"{TEMPLATE}.metadata")
    yield from differences(old.spec, new.spec, f"{TEMPLATE}.spec")
    yield from differences(old.others, new.others, TEMPLATE)


def differences(before: object, after: object, field: str) -> Iterator[Change]:
    """Yield what differs between two values, given as `equality.canonical` returns them."""
    yield from _differences(before, after, field, name="metadata", is_private=False)


def _differences(
    before: object, after: object, field: str, *, name: str, is_private: bool
) -> Iterator[Change]:
    if before == after:
        return
    is_private = is_private or name in _PRIVATE
    members = _members(before, after, name)
    if members is not None:
        old, new = members
        join = key if name in _MAPS else child
        for each in sorted({*old, *new}):
            yield from _differences(
                old.get(each), new.get(each), join(field, each), name=each, is_private=is_private
            )
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from _differences(one, other, f"{field}[{index}]", name="", is_private=is_private)
    else:
        yield Change(field, before, after, is_private)


def _members(
    before: object, after: object, name: str
) -> tuple[Mapping[str, object], Mapping[str, object]] | None:
    """Return the members to be compared one by one; None where the values are listed as a whole."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        return before, after
    if name not in _DESCENDED:
        return None
    if before is None and isinstance(after, Mapping) and after:
        return {}, after
    if after is None and isinstance(before, Mapping) and before:
        return before, {}
    return None


def shown(value: object) -> str:
    """Print a value for a message: short, and never more than one line."""
    if value is None:
        return "none"
    text = str(value) if isinstance(value, Quantity) else json.dumps(_plain(value))
    if len(text) <= _MOST_CHARACTERS:
        return text
    return f"{text[: _MOST_CHARACTERS - 3]}..."


def _plain(value: object) -> object:
    """Return a value by meaning as it could stand in an object; of named items, the names."""
    match value:
        case Quantity() | datetime():
            return str(value)
        case Mapping():
            return {name: _plain(item) for name, item in value.items()}
        case list():
            names = [item.get("name") for item in value if isinstance(item, Mapping)]
            is_named = len(names) == len(value) and None not in names
            return names if is_named else [_plain(item) for item in value]
        case ("boolean", flag):
            return flag
        case ("number", text):
            return text
        case _:
            return value
