"""Users of the page and their rights, as the API server reviews them.

A namespace is shown to users who may list its resourcequotas and its pods: all that the page has is
in these, and in what is made of them. Reviews are kept for a few seconds.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from webhook.controllers.runtime.rate_limit import TokenBucket
from webhook.jsonfields.fields import mapping
from webhook.jsonfields.reader import FieldReader
from webhook.kube.api import ClusterApi, ForbiddenError, Kind, Object

_T = TypeVar("_T")

TOKEN_REVIEWS: Final = Kind(
    "authentication.k8s.io", "v1", "TokenReview", "tokenreviews", namespaced=False
)
SUBJECT_ACCESS_REVIEWS: Final = Kind(
    "authorization.k8s.io", "v1", "SubjectAccessReview", "subjectaccessreviews", namespaced=False
)

REVIEW_SECONDS: Final = 15.0
"""How long a review counts: a right that is taken away is noticed so much later."""
_KEPT: Final = 256
"""Users whose reviews are kept."""
_REVIEWS_PER_SECOND: Final = 10.0
"""Tokens that are reviewed; any client that reaches the port can send some."""
_SERVICE_ACCOUNT: Final = "system:serviceaccount:"
_AT_ONCE: Final = 8
MAX_TOKEN_LENGTH: Final = 16 * 1024
_SHOWN: Final = ("resourcequotas", "pods")
_ALL_NAMESPACES: Final = ""
_CREDENTIAL: Final = "authentication.kubernetes.io/credential-id"


class TooManyReviewsError(Exception):
    """More tokens or lists come than are reviewed; the text says which."""


class NotInstalledError(Exception):
    """Tokens or rights cannot be reviewed for want of a right; the text says what gives it."""


@dataclass(frozen=True, slots=True)
class User:
    """A user as the API server knows it."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Further fields, by which authorizers may narrow what a token can do, sorted."""
    credential: tuple[str, ...] = field(default=(), compare=False)
    """Id of the very token: the rights of another one of the user are the same."""


class NewestValues(Generic[_T]):
    """Values that count for some seconds, the newest of them. Safe to use from several threads."""

    def __init__(self, clock: Callable[[], float], most: int, seconds: float) -> None:
        self._clock = clock
        self._most = most
        self._seconds = seconds
        self._lock = threading.Lock()
        self._kept: dict[object, tuple[float, _T]] = {}
        """Until when, and the value: the oldest first."""

    def get(self, key: object) -> _T | None:
        """Return the value of a key, while it counts."""
        with self._lock:
            until, value = self._kept.get(key, (self._clock(), None))
            return None if until <= self._clock() else value

    def put(self, key: object, value: _T) -> None:
        """Keep a value; those that count no more go."""
        with self._lock:
            now = self._clock()
            self._kept.pop(key, None)
            self._kept[key] = now + self._seconds, value
            while len(self._kept) > self._most or next(iter(self._kept.values()))[0] <= now:
                del self._kept[next(iter(self._kept))]


class Authenticator:
    """Users by their tokens. Safe to use from several threads."""

    def __init__(self, api: ClusterApi, clock: Callable[[], float]) -> None:
        self._api = api
        self._users: NewestValues[User] = NewestValues(clock, _KEPT, REVIEW_SECONDS)
        self._lock = threading.Lock()
        self._bucket = TokenBucket(lambda: _REVIEWS_PER_SECOND, clock)

    def user(self, token: str) -> User | None:
        """Return the user of a token; None where the API server knows none.

        Raises:
            TooManyReviewsError: Others have sent too many unknown tokens just now.
            NotInstalledError: This process has no right to review tokens.
            ApiError: The API server does not answer.
        """
        if not token.isascii() or not token.isprintable() or not 0 < len(token) <= MAX_TOKEN_LENGTH:
            return None
        key = hashlib.sha256(token.encode()).digest()  # no token stays in memory
        known = self._users.get(key)
        if known is not None:
            return known
        with self._lock:
            if self._bucket.delay():
                raise TooManyReviewsError("too many unknown tokens came just now; try again")
            self._bucket.take()
        user = _user_in(_reviewed(self._api, TOKEN_REVIEWS, {"token": token}))
        if user is not None:
            self._users.put(key, user)
        return user


def _user_in(raw: Object) -> User | None:
    status = FieldReader(raw).child("status")
    if not status.boolean("authenticated"):
        return None
    user = status.child("user")
    stored = mapping(mapping(raw.get("status"), "status").get("user"), "status.user")
    extra = user.child("extra")
    names = mapping(stored.get("extra"), "status.user.extra")
    return User(
        user.text("username"),
        user.text("uid"),
        user.strings("groups"),
        tuple((name, extra.strings(name)) for name in sorted(names) if name != _CREDENTIAL),
        extra.strings(_CREDENTIAL),
    )


class Authorizer:
    """Namespaces that users may see. Safe to use from several threads."""

    def __init__(self, api: ClusterApi, clock: Callable[[], float]) -> None:
        self._api = api
        self._rights: NewestValues[bool] = NewestValues(clock, 64 * _KEPT, REVIEW_SECONDS)
        self._lock = threading.Lock()
        self._listing: set[str] = set()
        """Tenants with a list for which rights are being reviewed."""

    def visible(self, user: User, namespaces: Iterable[str]) -> list[str]:
        """Return those of the namespaces that a user may see, sorted.

        Raises:
            TooManyReviewsError: Rights are being reviewed for another list of the user, or of a
                service account of the same namespace.
            NotInstalledError: This process has no right to review access.
            ApiError: The API server does not answer.
        """
        wanted = sorted(namespaces)
        if not wanted or self.may_see(user, _ALL_NAMESPACES):
            return wanted
        known = [self._rights.get((user, name)) for name in wanted]
        if None in known:
            with self._only_list_of(user), ThreadPoolExecutor(_AT_ONCE, "page-access") as threads:
                known = [*threads.map(lambda name: self.may_see(user, name), wanted)]
        return [name for name, is_allowed in zip(wanted, known, strict=True) if is_allowed]

    @contextmanager
    def _only_list_of(self, user: User) -> Iterator[None]:
        """Let a tenant have one list reviewed at a time: it may make service accounts at will."""
        tenant = user.name
        if tenant.startswith(_SERVICE_ACCOUNT):
            tenant = tenant.rpartition(":")[0]
        with self._lock:
            if tenant in self._listing:
                raise TooManyReviewsError("another list of yours is being made; try again")
            self._listing.add(tenant)
        try:
            yield
        finally:
            self._listing.discard(tenant)

    def may_see(self, user: User, namespace: str) -> bool:
        """Return whether a user may list the quotas and pods of a namespace; empty is all of them.

        Raises:
            NotInstalledError: This process has no right to review access.
            ApiError: The API server does not answer.
        """
        key = (user, namespace)
        known = self._rights.get(key)
        if known is None:
            known = all(self._may_list(user, resource, namespace) for resource in _SHOWN)
            self._rights.put(key, known)
        return known

    def _may_list(self, user: User, resource: str, namespace: str) -> bool:
        attributes = {"verb": "list", "resource": resource, "version": "v1"}
        if namespace:
            attributes["namespace"] = namespace
        extra = (*user.extra, *([(_CREDENTIAL, user.credential)] if user.credential else ()))
        spec = {
            "resourceAttributes": attributes,
            "user": user.name,
            "uid": user.uid,
            "groups": [*user.groups],
            "extra": {name: [*values] for name, values in extra},
        }
        status = FieldReader(_reviewed(self._api, SUBJECT_ACCESS_REVIEWS, spec)).child("status")
        return status.boolean("allowed") and not status.boolean("denied")


def _reviewed(api: ClusterApi, kind: Kind, spec: Object) -> Object:
    """Return a review as it was answered."""
    try:
        return api.create(kind, kind.make({}, spec=spec)).object
    except ForbiddenError as err:
        raise NotInstalledError(
            f"the controller has no right to create {kind.resource}; manifests/components/page"
            " gives it"
        ) from err
