"""Conflicts: what is written whatever stands there is written again, what is not is left."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from tests.install.twin import QUICK, SYSTEM, Twin, run
from webhook.install.apply import Applier, InstallApi
from webhook.install.uninstall import Removal, uninstall
from webhook.kube.api import (
    SECRETS,
    AlreadyExistsError,
    ApiError,
    ClusterApi,
    ConflictError,
    InternalError,
    TooManyRequestsError,
)
from webhook.operations.retry import silent

_CONFLICTS: list[Callable[[], ApiError]] = [
    lambda: ConflictError("the object has been modified"),
    lambda: AlreadyExistsError("was made just now"),
]
_PASSING: list[Callable[[], ApiError]] = [
    lambda: InternalError.of("etcd"),
    lambda: TooManyRequestsError("later"),
]


@pytest.fixture(autouse=True)
def _quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("webhook.install.apply._PATIENCE", QUICK)


class Refusing(Twin):
    """An API server that refuses the first try of each write."""

    def __init__(self, error: Callable[[], ApiError]) -> None:
        super().__init__()
        self.error: Callable[[], ApiError] | None = error
        self.tried: set[str] = set()

    def _first(self, *what: object) -> None:
        key = str(what)
        if self.error is not None and key not in self.tried:
            self.tried.add(key)
            raise self.error()

    def apply(self, kind: Any, obj: Any, **options: Any) -> Any:
        metadata = obj["metadata"]
        if "resourceVersion" not in metadata:
            self._first("apply", kind.kind, metadata["name"])
        return super().apply(kind, obj, **options)

    def patch(self, kind: Any, name: str, *args: Any, **options: Any) -> Any:
        self._first("patch", kind.kind, name)
        return super().patch(kind, name, *args, **options)

    def delete(self, kind: Any, name: str, *, namespace: str = "", **options: Any) -> Any:
        self._first("delete", kind.kind, name)
        return super().delete(kind, name, namespace=namespace, **options)


@pytest.mark.parametrize("error", [*_CONFLICTS, *_PASSING])
def test_an_installation_that_meets_a_conflict_at_each_write_comes_to_its_end(
    error: Callable[[], ApiError],
) -> None:
    whole, refusing = Twin(), Refusing(error)
    run(whole)
    run(refusing)
    assert refusing.tried
    assert refusing.written == whole.written


@pytest.mark.parametrize("error", [*_CONFLICTS, *_PASSING])
def test_an_uninstallation_that_meets_a_conflict_at_each_write_does_too(
    error: Callable[[], ApiError],
) -> None:
    refusing = Refusing(error)
    refusing.error = None
    run(refusing)
    refusing.error = error
    problems = uninstall(cast("ClusterApi", refusing), Removal(patience=QUICK), silent)
    assert refusing.tried
    assert problems == ()
    assert not refusing.api.list(SECRETS).items


def test_what_is_to_be_written_over_one_version_only_is_not_tried_again() -> None:
    """Another installation has made a certificate meanwhile."""
    twin = Twin()
    run(twin)
    tries: list[object] = []

    def apply(*args: Any, **_: Any) -> Any:
        tries.append(args)
        raise ConflictError("the object has been modified")

    twin.apply = apply  # type: ignore[method-assign]
    metadata = {"name": "deferred-quota-tls", "namespace": SYSTEM, "resourceVersion": "1"}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata}
    with pytest.raises(ConflictError):
        Applier(cast("InstallApi", twin), silent).apply(secret)
    assert len(tries) == 1
