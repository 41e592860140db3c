"""Hook of admission in a write, as the API server calls its webhooks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from webhook.kube.api import Object
from webhook.kube.kinds import Kind

Operation: TypeAlias = Literal["CREATE", "UPDATE", "DELETE"]


@dataclass(frozen=True, slots=True)
class WriteRequest:
    """One write on its way to the store."""

    operation: Operation
    kind: Kind
    """The kind of the object that is sent."""
    resource: Kind
    """The kind whose path it is sent to; another one for `pods/binding`."""
    subresource: str
    """"status", "resize", "binding", or empty."""
    namespace: str
    """Empty for kinds without namespace."""
    name: str
    """Empty while a `generateName` has not been made into a name."""
    new: Object | None
    """The object as it is asked for; None on DELETE."""
    old: Object | None
    """The object as it is stored; None on CREATE."""
    dry_run: bool
    """Nothing will be written."""
    options: Mapping[str, object]
    """CreateOptions, UpdateOptions or DeleteOptions."""


class Admission(Protocol):
    """The steps before a write. Objects that are passed in belong to the admission step."""

    def mutate(self, request: WriteRequest) -> Object | None:
        """Return the object to go on with; on DELETE there is none.

        Raises:
            ApiError: The write is refused.
        """

    def validate(self, request: WriteRequest) -> None:
        """Look at the write as it would be stored.

        Raises:
            ApiError: The write is refused.
        """
