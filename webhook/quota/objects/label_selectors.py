"""Label selectors: which sets of labels one selects.

Source: kubernetes v1.36, apimachinery/pkg/apis/meta/v1/helpers.go LabelSelectorAsSelector and
apimachinery/pkg/labels/selector.go Requirement.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from webhook.jsonfields.reader import FieldReader

_Test: TypeAlias = Callable[[str | None, tuple[str, ...]], bool]

# What an operator asks of the label's value, None if there is no such label.
_TESTS: Final[Mapping[str, _Test]] = {
    "In": lambda value, values: value in values,
    "NotIn": lambda value, values: value not in values,
    "Exists": lambda value, _: value is not None,
    "DoesNotExist": lambda value, _: value is None,
}
_WITH_VALUES: Final = frozenset({"In", "NotIn"})


@dataclass(frozen=True, slots=True)
class Requirement:
    """One expression of a selector."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    @property
    def is_valid(self) -> bool:
        """Whether the operator is known and has values exactly where it needs some."""
        return self.operator in _TESTS and bool(self.values) == (self.operator in _WITH_VALUES)

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether the labels meet the expression; an invalid one is never met."""
        return self.is_valid and _TESTS[self.operator](labels.get(self.key), self.values)


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """A selector; an empty one selects everything."""

    labels: Mapping[str, str]
    requirements: tuple[Requirement, ...] = ()

    @property
    def is_valid(self) -> bool:
        """Whether all its expressions are."""
        return all(requirement.is_valid for requirement in self.requirements)

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether the labels meet all that the selector asks for."""
        wanted = all(labels.get(key) == value for key, value in self.labels.items())
        return wanted and all(requirement.matches(labels) for requirement in self.requirements)


def read_label_selector(raw: object, field: str) -> LabelSelector | None:
    """Read a selector; null is None, which selects nothing.

    Raises:
        InvalidFieldError: A field has the wrong type.
    """
    return None if raw is None else _selector(FieldReader(raw, field))


def read_selector_at(node: FieldReader, name: str) -> LabelSelector | None:
    """Read the selector that is a field of an object; null is None, which selects nothing.

    Raises:
        InvalidFieldError: A field has the wrong type.
    """
    return _selector(node.child(name)) if node.has(name) else None


def read_requirement(node: FieldReader) -> Requirement:
    """Read one expression, of labels or of a node's labels and fields."""
    return Requirement(node.text("key"), node.text("operator"), node.strings("values"))


def _selector(node: FieldReader) -> LabelSelector:
    requirements = map(read_requirement, node.children("matchExpressions"))
    return LabelSelector(node.string_map("matchLabels"), tuple(requirements))
