"""Errors that keep a check from looking."""

from __future__ import annotations

from dataclasses import dataclass

from webhook.kube.kinds import Kind
from webhook.operations.findings import Severity


@dataclass(frozen=True, slots=True)
class ResourceAttributes:
    """Action for which a user lacks the right, as access reviews name it."""

    verb: str
    kind: Kind
    namespace: str
    """Empty is everywhere."""
    subresource: str = ""

    @property
    def resource(self) -> str:
        """Return the resource as roles name it."""
        return f"{self.kind.plural}/{self.subresource}" if self.subresource else self.kind.plural


class NoRightError(Exception):
    """Something may not be read, or tried.

    Attributes:
        attributes: What may not be done.
        severity: How bad it is.
        remedy: What to do; empty is to grant the right.
        is_partial: Whether the check has looked at all else.
    """

    def __init__(
        self,
        attributes: ResourceAttributes,
        message: str,
        *,
        severity: Severity = Severity.WARN,
        remedy: str = "",
        is_partial: bool = False,
    ) -> None:
        super().__init__(message)
        self.attributes = attributes
        self.severity = severity
        self.remedy = remedy
        self.is_partial = is_partial


class NotInSnapshotError(Exception):
    """The snapshot has no object of a kind, so nothing can be said about it."""

    def __init__(self, kind: Kind) -> None:
        super().__init__(kind.resource)
        self.resource = kind.resource
