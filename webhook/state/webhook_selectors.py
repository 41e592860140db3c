"""LabelSelector objects, as webhook configurations select namespaces with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from webhook.jsonfields.fields import InvalidFieldError
from webhook.jsonfields.reader import FieldReader
from webhook.kube.selectors import Term


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
