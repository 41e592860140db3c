"""The certificates of an installation as they are stored: two Secrets, and the registrations.

Secrets are written by compare-and-swap, and only those that carry our labels. A registration is
changed entry by entry, by a JSON Patch that tests the entry's name and what stood there, so that
nothing is written over that another client has changed meanwhile.
"""

from __future__ import annotations

import base64
import binascii
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Final

from webhook.jsonfields.fields import (
    InvalidFieldError,
    mapping,
    sequence,
    string_map,
    timestamp,
)
from webhook.jsonfields.reader import FieldReader
from webhook.kube.api import SECRETS, ClusterApi, InvalidError, Kind, Object, find_object
from webhook.kube.metadata import time_text
from webhook.state.well_known import (
    CA_SECRET,
    INJECTED_ANNOTATIONS,
    ISSUED_ANNOTATION,
    TLS_SECRET,
)
from webhook.tls.called_names import REGISTRATIONS
from webhook.tls.issue import Issued, service_names
from webhook.tls.rotation import (
    Inject,
    InstalledCertificates,
    Renewed,
    RotationSpec,
    Step,
    Surroundings,
    Wait,
    WriteCa,
    WriteServing,
    injected,
    next_step,
)

SERVICE: Final = "deferred-quota-webhook"
_OWNER: Final = {
    "app.kubernetes.io/name": "deferred-quota",
    "app.kubernetes.io/part-of": "deferred-quota",
    "app.kubernetes.io/component": "certificates",
}
_PUBLISHED: Final = "deferredquota.io/published"
_FORMER_UNTIL: Final = "deferredquota.io/former-until"
_GENERATION: Final = "deferredquota.io/generation"
_FORMAT: Final = "deferredquota.io/format"
FORMAT: Final = 1
"""Version of what stands in both Secrets; without one it is the first."""
_TYPE: Final = "kubernetes.io/tls"
_GENERATIONS: Final = re.compile("[0-9]{1,9}")
_FORMER: Final = "former.crt"
_MAX_STEPS: Final = 12
"""A change of the CA takes five; each of them is seen before the next is decided."""

MAX_SKEW: Final = timedelta(minutes=30)
"""By how much clocks may differ: certificates begin an hour in the past."""

_log = logging.getLogger(__name__)


class ForeignCertificatesError(Exception):
    """Certificates that another program keeps: nothing of them is touched."""


class WrongClockError(Exception):
    """The clock of this machine is not that of the API server.

    A certificate that begins in the future is refused by every API server, and by a clock that is
    years ahead all are over.
    """


@dataclass(frozen=True, slots=True)
class StoredCertificates:
    """Both Secrets as they were read."""

    held: InstalledCertificates
    ca: Object | None = None
    tls: Object | None = None


@dataclass(frozen=True, slots=True)
class RegisteredEntry:
    """An entry of a registration that calls our Service."""

    kind: Kind
    registration: str
    index: int
    name: str
    bundle: bytes
    """Its caBundle, PEM; empty where it has none, or one that is not base64."""
    raw_bundle: str | None = field(default=None, repr=False)


def spec_for(namespace: str) -> RotationSpec:
    """Return what the certificates of an installation in `namespace` are to be like."""
    return RotationSpec(dns_names=service_names(SERVICE, namespace))


def parse_secrets(ca: Object | None, tls: Object | None) -> StoredCertificates:
    """Return what both Secrets hold; what cannot be read of them is not there.

    Raises:
        ForeignCertificatesError: One of them is not ours.
    """
    signing, served = _data_of(ca, CA_SECRET), _data_of(tls, TLS_SECRET)
    notes = {**_annotations(ca), **_annotations(tls)}
    generation = notes.get(_GENERATION, "")
    held = InstalledCertificates(
        ca=_pair(signing),
        former=signing.get(_FORMER, b""),
        serving=_pair(served),
        bundle=served.get("ca.crt", b""),
        published=_time(notes.get(_PUBLISHED, "")),
        former_until=_time(notes.get(_FORMER_UNTIL, "")),
        generation=int(generation) if _GENERATIONS.fullmatch(generation) else 0,
    )
    return StoredCertificates(held, ca, tls)


def served_pair(secret: Object) -> Issued:
    """Return the pair in a Secret for TLS, of any owner; empty where it cannot be read."""
    try:
        data = string_map(secret.get("data"), "data")
    except InvalidFieldError:
        return Issued(b"", b"")
    return Issued(_decoded(data.get("tls.crt", "")), _decoded(data.get("tls.key", "")))


def ca_secret(held: InstalledCertificates, namespace: str, before: Object | None = None) -> Object:
    """Return the Secret of the CA as it has to be; `before` is the one that is replaced."""
    data = {**_pem(held.ca), **({_FORMER: held.former} if held.former else {})}
    notes = {_GENERATION: str(held.generation), _PUBLISHED: _text(held.published)}
    return _secret(CA_SECRET, namespace, data, notes, before)


def tls_secret(held: InstalledCertificates, namespace: str, before: Object | None = None) -> Object:
    """Return the Secret of the served pair as it has to be."""
    data = {**_pem(held.serving), "ca.crt": held.bundle}
    return _secret(TLS_SECRET, namespace, data, {_FORMER_UNTIL: _text(held.former_until)}, before)


class CertificateStore:
    """Reads and changes the certificates of the installation in one namespace."""

    def __init__(self, api: ClusterApi, namespace: str, *, dry_run: bool = False) -> None:
        self._api = api
        self._namespace = namespace
        self._dry_run = dry_run

    def read(self) -> StoredCertificates:
        """Return both Secrets.

        Raises:
            ForeignCertificatesError: One of them is not ours.
            ApiError: They cannot be read.
        """
        ca, tls = (
            find_object(self._api, SECRETS, name, namespace=self._namespace)
            for name in (CA_SECRET, TLS_SECRET)
        )
        return parse_secrets(ca, tls)

    def entries(self) -> tuple[RegisteredEntry, ...]:
        """Return the registered entries that call the Service of this installation.

        Raises:
            ForeignCertificatesError: Another program writes into a registration.
            ApiError: They cannot be read.
        """
        return tuple(
            entry
            for kind, name in REGISTRATIONS
            if (found := find_object(self._api, kind, name)) is not None
            for entry in _entries(kind, found, self._namespace)
        )

    def apply(
        self, step: WriteCa | WriteServing, stored: StoredCertificates, *, now: datetime
    ) -> StoredCertificates:
        """Write a Secret over the one that was read; return what is stored then.

        Raises:
            WrongClockError: `now` is not what the API server's clock says; nothing is written.
            ConflictError: Another client was first.
            ApiError: The API server does not do it.
        """
        held = step.certificates
        if isinstance(step, WriteCa):
            secret = ca_secret(held, self._namespace, stored.ca)
            return replace(stored, held=held, ca=self._write(secret, stored.ca, now))
        secret = tls_secret(held, self._namespace, stored.tls)
        return replace(stored, held=held, tls=self._write(secret, stored.tls, now))

    def inject(self, step: Inject, entries: Sequence[RegisteredEntry]) -> tuple[str, ...]:
        """Write the bundle into the entries that lack it; return their names.

        Raises:
            InvalidError: An entry is another one by now.
            ApiError: The API server does not do it.
        """
        lacking = [one for one in entries if injected(one.bundle, step) != one.bundle]
        for (kind, name), some in groupby(lacking, lambda one: (one.kind, one.registration)):
            patch = [
                part for one in some for part in _bundle_patch(one, injected(one.bundle, step))
            ]
            self._api.patch(kind, name, patch, dry_run=self._dry_run)
        return tuple(one.name for one in lacking)

    def _write(self, secret: Object, before: Object | None, now: datetime) -> Object:
        """Write a Secret, where the clock is right; return it as it is stored."""
        write = self._api.create if before is None else self._api.update
        _check_clock(write(SECRETS, secret, dry_run=True).object, before, now)
        return write(SECRETS, secret).object


@dataclass(frozen=True, slots=True)
class RotationResult:
    """Result of a rotation, and what comes next."""

    done: tuple[tuple[str, str], ...]
    """What was written (`ca`, `leaf`, `bundle` or `injected`), and why."""
    waits: Wait
    """Until when nothing is to be done."""
    held: InstalledCertificates


def rotate(
    store: CertificateStore,
    spec: RotationSpec,
    entries: Sequence[RegisteredEntry],
    *,
    clock: Callable[[], datetime],
    forces: Renewed | None = None,
    rereads: int = 0,
) -> RotationResult:
    """Take all steps that can be taken now, with the entries as they are registered.

    Each step has the time at which it is decided: since when the registrations have a CA is not
    noted by a time from before they were written. Entries that are others by now are read anew as
    often as `rereads`.

    Raises:
        ForeignCertificatesError: The certificates are not ours.
        WrongClockError: `clock` is not that of the API server.
        ConflictError: Another client was first; it can be begun again.
        InvalidError: An entry is another one by now.
        ApiError: The API server does not do it.
    """
    stored = store.read()
    done: list[tuple[str, str]] = []
    first = stored.held
    for _ in range(_MAX_STEPS):
        around = Surroundings(
            now=clock(),
            bundles=tuple(entry.bundle for entry in entries),
            forces=forces if _part(stored.held, forces) is _part(first, forces) else None,
        )
        step: Step = next_step(stored.held, spec, around)
        match step:
            case Wait():
                return RotationResult(tuple(done), step, stored.held)
            case Inject():
                try:
                    names = store.inject(step, entries)
                except InvalidError:  # a registration was applied again meanwhile
                    if not rereads:
                        raise
                    rereads, entries = rereads - 1, store.entries()
                    continue
                done.append(("injected", f"caBundle of {', '.join(names)}: {step.reason}"))
                entries = tuple(
                    replace(entry, bundle=injected(entry.bundle, step)) for entry in entries
                )
            case WriteCa() | WriteServing():
                former = stored.held
                stored = store.apply(step, stored, now=around.now)
                done.append(_written(step, former))
        _log.info("certificates changed", extra={"what": done[-1][1]})
    raise RuntimeError(f"the certificates do not come to rest: {done}")


def _part(held: InstalledCertificates, which: Renewed | None) -> Issued | None:
    return held.ca if which == "ca" else held.serving


def _written(step: WriteCa | WriteServing, former: InstalledCertificates) -> tuple[str, str]:
    if isinstance(step, WriteCa):
        return "ca", f"Secret {CA_SECRET}: {step.reason}"
    is_leaf = step.certificates.serving is not former.serving
    return "leaf" if is_leaf else "bundle", f"Secret {TLS_SECRET}: {step.reason}"


def _check_clock(answer: Object, before: Object | None, now: datetime) -> None:
    """Compare a time with the one at which a Secret would have been written.

    Raises:
        WrongClockError: They differ by more than `MAX_SKEW`.
    """
    metadata = mapping(answer.get("metadata"), "metadata")
    written = [timestamp(metadata.get("creationTimestamp"), "metadata.creationTimestamp")]
    if before is not None:
        path = "metadata.managedFields"
        entries = sequence(metadata.get("managedFields"), path)
        written = [timestamp(mapping(one, path).get("time"), f"{path}.time") for one in entries]
    there = max((one for one in written if one is not None), default=None)
    if there is not None and abs(there - now) > MAX_SKEW:
        raise WrongClockError(
            f"the clock here says {time_text(now)}, that of the API server {time_text(there)}: no"
            " certificate is written by it"
        )


def _entries(kind: Kind, registration: Object, namespace: str) -> Iterator[RegisteredEntry]:
    metadata = mapping(registration.get("metadata"), "metadata")
    notes = mapping(metadata.get("annotations"), "metadata.annotations")
    other = next((note for note in INJECTED_ANNOTATIONS if note in notes), None)
    if other is not None:
        raise ForeignCertificatesError(
            f"{kind.kind} {metadata['name']} has the annotation {other}: cert-manager writes its"
            " caBundle. Only one of both may: take the annotation away, or use the overlay without"
            " rotation"
        )
    for index, entry in enumerate(FieldReader(registration).children("webhooks")):
        client = entry.child("clientConfig")
        if not client.has("service"):
            continue
        service = client.child("service")
        if (service.text("name"), service.text("namespace")) != (SERVICE, namespace):
            continue
        raw = client.text("caBundle") if client.has("caBundle") else None
        yield RegisteredEntry(
            kind, str(metadata["name"]), index, entry.text("name"), _decoded(raw or ""), raw
        )


def _bundle_patch(entry: RegisteredEntry, bundle: bytes) -> list[dict[str, object]]:
    place = f"/webhooks/{entry.index}"
    path = f"{place}/clientConfig/caBundle"
    tests: list[dict[str, object]] = [
        {"op": "test", "path": f"{place}/name", "value": entry.name},
    ]
    if entry.raw_bundle is not None:
        tests.append({"op": "test", "path": path, "value": entry.raw_bundle})
    value = base64.b64encode(bundle).decode("ascii")
    return [*tests, {"op": "add", "path": path, "value": value}]


def _secret(
    name: str,
    namespace: str,
    data: Mapping[str, bytes],
    notes: Mapping[str, str],
    before: Object | None,
) -> Object:
    there = {} if before is None else mapping(before.get("metadata"), "metadata")
    kept = {field: there[field] for field in ("resourceVersion", "uid") if there.get(field)}
    annotations = {**_annotations(before), _FORMAT: str(FORMAT), **notes}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": _TYPE,
        "metadata": {
            **kept,
            "name": name,
            "namespace": namespace,
            "labels": {**string_map(there.get("labels"), "metadata.labels"), **_OWNER},
            "annotations": {key: value for key, value in annotations.items() if value},
        },
        "data": {key: base64.b64encode(value).decode("ascii") for key, value in data.items()},
    }


def _data_of(secret: Object | None, name: str) -> Mapping[str, bytes]:
    """Return the decoded data of a Secret of ours; what is not base64 is not there."""
    if secret is None:
        return {}
    metadata = mapping(secret.get("metadata"), "metadata")
    issued = _annotations(secret).get(ISSUED_ANNOTATION)
    if issued is not None:  # our labels stay where cert-manager took a Secret over
        raise ForeignCertificatesError(
            f"Secret {metadata.get('namespace')}/{name} is written by cert-manager, for its"
            f" Certificate {issued}. Only one of both may: delete the Certificate and the Secret,"
            " or use the overlay without rotation"
        )
    labels = mapping(metadata.get("labels"), "metadata.labels")
    if any(labels.get(label) != value for label, value in _OWNER.items()):
        raise ForeignCertificatesError(
            f"Secret {metadata.get('namespace')}/{name} was not made by deferred-quota (it lacks"
            f" the label app.kubernetes.io/component=certificates): it is not touched. Delete it,"
            " and run this again"
        )
    if (kind := secret.get("type", _TYPE)) != _TYPE:
        raise ForeignCertificatesError(
            f"Secret {metadata.get('namespace')}/{name} is of the type {kind}, not {_TYPE}: a type"
            " cannot be changed. Delete it, and run this again"
        )
    written = _annotations(secret).get(_FORMAT, "")
    if _GENERATIONS.fullmatch(written) and int(written) > FORMAT:
        raise ForeignCertificatesError(
            f"Secret {metadata.get('namespace')}/{name} has the annotation {_FORMAT}: {written}, of"
            f" a newer release: this one reads up to {FORMAT}, and leaves it as it is"
        )
    data = string_map(secret.get("data"), "data")
    return {key: _decoded(value) for key, value in data.items()}


def _annotations(secret: Object | None) -> Mapping[str, str]:
    if secret is None:
        return {}
    metadata = mapping(secret.get("metadata"), "metadata")
    return string_map(metadata.get("annotations"), "metadata.annotations")


def _decoded(value: str) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return b""


def _pair(data: Mapping[str, bytes]) -> Issued | None:
    certificate, key = data.get("tls.crt", b""), data.get("tls.key", b"")
    return Issued(certificate, key) if certificate or key else None


def _pem(pair: Issued | None) -> dict[str, bytes]:
    """Return the two keys that a Secret for TLS has to have."""
    pair = pair or Issued(b"", b"")
    return {"tls.crt": pair.certificate, "tls.key": pair.key}


def _text(moment: datetime | None) -> str:
    return "" if moment is None else time_text(moment)


def _time(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text).astimezone(UTC) if text else None
    except (ValueError, OverflowError):
        return None
