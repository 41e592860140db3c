"""Selectors of webhook configurations: namespaces and objects by labels, requests by rules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from webhook.jsonfields.fields import InvalidFieldError
from webhook.jsonfields.reader import FieldReader
from webhook.kube.selectors import Term

BINDS: Final = (("CREATE", "", "pods/binding"), ("CREATE", "", "bindings"))
"""What is asked about so that every bind is: operation, group and resource."""
_OF_NO_NAMESPACE: Final = frozenset({"clusterdeferredquotas"})
"""Resources that rules for namespaces do not cover, and the other way round."""
_VERSIONS: Final = {
    "deferredquota.io": "v1alpha1",
    "jobset.x-k8s.io": "v1alpha2",
    "nos.nebuly.com": "v1alpha1",
}
"""The version in which requests of a group are asked about, where it is not v1.

A rule of other versions covers nothing: `matchPolicy: Equivalent` looks only at those that the API
server serves.
"""


class UnknownOperatorError(InvalidFieldError):
    """An expression with an operator that is none of the four.

    Attributes:
        operator: What it says.
    """

    def __init__(self, field: str, operator: str) -> None:
        super().__init__(field, f"unknown operator {operator!r}")
        self.operator = operator


@dataclass(frozen=True, slots=True)
class WebhookSelector:
    """Requirements on labels, all of which have to be met; none select everything."""

    terms: tuple[Term, ...] = ()

    @classmethod
    def read(cls, node: FieldReader) -> WebhookSelector:
        """Read a selector.

        Raises:
            UnknownOperatorError: An operator is not known.
            InvalidFieldError: A field has the wrong type.
        """
        labels = node.string_map("matchLabels").items()
        terms = [Term(key, frozenset({value})) for key, value in labels]
        return cls((*terms, *(_requirement(one) for one in node.children("matchExpressions"))))

    @property
    def is_empty(self) -> bool:
        """Whether it selects everything."""
        return not self.terms

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether labels match."""
        return all(term.accepts(labels.get(term.key)) for term in self.terms)


def _requirement(expression: FieldReader) -> Term:
    operator, key = expression.text("operator"), expression.text("key")
    if operator not in {"In", "NotIn", "Exists", "DoesNotExist"}:
        raise UnknownOperatorError(expression.path("operator"), operator)
    values = frozenset(expression.strings("values")) if operator.endswith("In") else None
    return Term(key, values, negated=operator in {"NotIn", "DoesNotExist"})


def uncovered(rules: Iterable[FieldReader], wanted: Iterable[tuple[str, str, str]]) -> list[str]:
    """Return which requests (operation, group, resource) no rule of a registration covers."""
    read = tuple(rules)
    return [
        f"{operation} {resource}"
        for operation, group, resource in wanted
        if not any(_sees(rule, operation, group, resource) for rule in read)
    ]


def _sees(rule: FieldReader, operation: str, group: str, resource: str) -> bool:
    place = "Cluster" if resource in _OF_NO_NAMESPACE else "Namespaced"
    return (
        rule.text("scope") in {"", "*", place}
        and _names(rule.strings("operations"), operation)
        and _names(rule.strings("apiGroups"), group)
        and _names(rule.strings("apiVersions"), _VERSIONS.get(group, "v1"))
        and _covers(rule.strings("resources"), resource)
    )


def _names(listed: tuple[str, ...], name: str) -> bool:
    return "*" in listed or name in listed


def _covers(listed: tuple[str, ...], resource: str) -> bool:
    """Return whether a rule's resources include one.

    Source: kubernetes v1.36, apiserver/pkg/admission/plugin/webhook/predicates/rules/rules.go.
    """
    wanted, _, wanted_part = resource.partition("/")
    return any(
        name in {"*", wanted} and part in {"*", wanted_part}
        for name, _, part in (each.partition("/") for each in listed)
    )
