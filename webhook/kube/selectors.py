"""Label and field selectors, as they stand in the query of a list or a watch.

Source: kubernetes v1.36, apimachinery/pkg/labels/selector.go, apimachinery/pkg/fields/selector.go.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from webhook.kube.errors import BadRequestError
from webhook.kube.kinds import Kind

FIELDS_OF_ALL: Final = frozenset({"metadata.name", "metadata.namespace"})
FIELDS_OF_PODS: Final = frozenset({"spec.nodeName", "status.phase"})


@dataclass(frozen=True, slots=True)
class Term:
    """One requirement: the value of `key` is (or is not) one of `values`.

    `values` None asks only whether the key is there. A key that is not there is in no values,
    so a negated term accepts it.
    """

    key: str
    values: frozenset[str] | None
    negated: bool = False

    def accepts(self, value: str | None) -> bool:
        """Return whether a value, None for none, meets the requirement."""
        found = value is not None if self.values is None else value in self.values
        return found is not self.negated


@dataclass(frozen=True, slots=True)
class Selector:
    """Requirements on labels and fields, all of which must be met."""

    labels: tuple[Term, ...] = ()
    fields: tuple[Term, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Return whether everything is selected."""
        return not self.labels and not self.fields

    def matches(self, labels: Mapping[str, str], field: Callable[[str], str]) -> bool:
        """Return whether an object is selected; `field` reads one of its selectable fields."""
        return all(term.accepts(labels.get(term.key)) for term in self.labels) and all(
            term.accepts(field(term.key)) for term in self.fields
        )


EVERYTHING: Final = Selector()


def parse_selector(kind: Kind, labels: str, fields: str) -> Selector:
    """Read both selectors of a request; empty text selects everything.

    Raises:
        BadRequestError: A selector cannot be read, or names a field that is not served.
    """
    if not labels and not fields:
        return EVERYTHING
    return Selector(parse_labels(labels), _parse_fields(kind, fields))


_KEY: Final = r"[A-Za-z0-9](?:[-\w./]*[A-Za-z0-9])?"
_VALUE: Final = r"[-\w.]*"
_TERM: Final = re.compile(
    rf"""\s*(?:
        (?P<absent>!)\s*(?P<absent_key>{_KEY})
      | (?P<key>{_KEY})\s*(?:
            (?P<operator>==|=|!=)\s*(?P<value>{_VALUE})
          | (?P<set>(?<=\s)in|(?<=\s)notin)\s*\((?P<values>[^()]*)\)
        )?
    )\s*(?:,|$)""",
    re.VERBOSE | re.ASCII,
)
_SET_VALUE: Final = re.compile(_VALUE, re.ASCII)


def parse_labels(text: str) -> tuple[Term, ...]:
    """Read a label selector: `a=b`, `a!=b`, `a in (b,c)`, `a notin (b)`, `a`, `!a`, with commas.

    Raises:
        BadRequestError: It cannot be read.
    """
    terms, position = [], 0
    while position < len(text):
        found = _TERM.match(text, position)
        if found is None:
            raise BadRequestError(f"unable to parse requirement: {text[position:]!r}")
        terms.append(_label_term(found))
        position = found.end()
    if text.rstrip().endswith(","):
        raise BadRequestError("unable to parse requirement: nothing after the last comma")
    return tuple(terms)


def _label_term(found: re.Match[str]) -> Term:
    if found["absent"]:
        return Term(found["absent_key"], None, negated=True)
    if found["operator"]:
        return Term(found["key"], frozenset({found["value"]}), negated=found["operator"] == "!=")
    if found["set"]:
        return Term(found["key"], _set_values(found["values"]), negated=found["set"] == "notin")
    return Term(found["key"], None)


def _set_values(text: str) -> frozenset[str]:
    values = [value.strip() for value in text.split(",")]
    wrong = next((value for value in values if not _SET_VALUE.fullmatch(value)), None)
    if wrong is not None:
        raise BadRequestError(f"unable to parse requirement: invalid label value {wrong!r}")
    return frozenset(values)


_FIELD_PART: Final = re.compile(r"((?:[^\\,]|\\[\\,=])*)(?:,|$)")
_FIELD_TERM: Final = re.compile(r"([^=!\\]+)(==|=|!=)(.*)", re.DOTALL)


def _parse_fields(kind: Kind, text: str) -> tuple[Term, ...]:
    terms, position = [], 0
    while position < len(text):
        part = _FIELD_PART.match(text, position)
        if part is None:
            raise BadRequestError(f"invalid field selector: {text!r}")
        if part[1]:
            terms.append(_field_term(kind, part[1]))
        position = part.end()
    return tuple(terms)


def _field_term(kind: Kind, text: str) -> Term:
    found = _FIELD_TERM.fullmatch(text)
    if found is None:
        raise BadRequestError(f"invalid field selector: {text!r}")
    key, operator, value = found.groups()
    if key not in _served_fields(kind):
        raise BadRequestError(f"field label not supported: {key}")
    return Term(key, frozenset({re.sub(r"\\(.)", r"\1", value)}), negated=operator == "!=")


def _served_fields(kind: Kind) -> frozenset[str]:
    is_pods = (kind.group, kind.plural) == ("", "pods")
    return FIELDS_OF_ALL | FIELDS_OF_PODS if is_pods else FIELDS_OF_ALL
