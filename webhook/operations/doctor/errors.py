"""What keeps a check from looking."""

from __future__ import annotations

from webhook.kube.kinds import Kind
from webhook.operations.findings import Severity


class NoRightError(Exception):
    """Something may not be read, or tried.

    Attributes:
        verb: What was to be done.
        resource: To which resource, as roles name it.
        group: Its API group; empty is the core group.
        namespace: Where; empty is everywhere.
        severity: How bad it is.
        remedy: What to do; empty is to grant the right.
    """

    def __init__(
        self,
        verb: str,
        kind: Kind,
        namespace: str,
        message: str,
        *,
        subresource: str = "",
        severity: Severity = Severity.WARN,
        remedy: str = "",
    ) -> None:
        super().__init__(message)
        self.verb = verb
        self.resource = f"{kind.plural}/{subresource}" if subresource else kind.plural
        self.group = kind.group
        self.namespace = namespace
        self.severity = severity
        self.remedy = remedy


class NotInSnapshotError(Exception):
    """The snapshot has no object of a kind, so nothing can be said about it."""

    def __init__(self, kind: Kind) -> None:
        super().__init__(kind.resource)
        self.resource = kind.resource
