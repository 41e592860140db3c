"""Where admission steps into a write, as the API server calls its webhooks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from webhook.kube.api import Object
from webhook.kube.kinds import Kind

Operation: TypeAlias = Literal["CREATE", "UPDATE", "DELETE"]


@dataclass(frozen=True, slots=True)
class WriteRequest:
    """One write on its way to the store.

    Attributes:
        operation: What is done.
        kind: The kind of the object that is sent.
        resource: The kind whose path it is sent to; another one for `pods/binding`.
        subresource: "status", "resize", "binding", or empty.
        namespace: Empty for kinds without namespace.
        name: Empty while a `generateName` has not been made into a name.
        new: The object as it is asked for; None on DELETE.
        old: The object as it is stored; None on CREATE.
        dry_run: Nothing will be written.
        options: CreateOptions, UpdateOptions or DeleteOptions.
    """

    operation: Operation
    kind: Kind
    resource: Kind
    subresource: str
    namespace: str
    name: str
    new: Object | None
    old: Object | None
    dry_run: bool
    options: Mapping[str, object]


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
