"""Inputs that a target begins with: valid ones, and those that once were answered wrongly."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.admission.reviews import a_review, encoded, recorded, recorded_names
from tests.builders import a_pod
from tests.tls.certificates import CA, OTHER_CA, a_foreign_certificate, a_serving_certificate
from webhook.jsonfields.encoding import encode_json
from webhook.tls.bundles import joined
from webhook.tls.rotation import InstalledCertificates
from webhook.tls.rotation_store import ca_secret, tls_secret

CORPUS = Path(__file__).parent / "corpus"
"""A directory for each target; an input that was answered wrongly stays there for good."""

_CHECKOUT = Path(__file__).parent.parent.parent
_HEAD = b"POST /validate HTTP/1.1\r\nHost: webhook\r\n"
_SERVING = a_serving_certificate()
_HELD = InstalledCertificates(
    ca=CA,
    former=OTHER_CA.certificate,
    serving=_SERVING,
    bundle=joined(CA.certificate, OTHER_CA.certificate),
    generation=2,
)
_RESERVATION = "u1 web-1 Bind 7 p1 requests.cpu=500m"
_LEDGER: Mapping[str, object] = {
    "format": 1,
    "quotas": [
        {
            "name": "p1",
            "observed": {"uid": "uid-p1", "specHash": "hash"},
            "hard": {"requests.cpu": "2", "count/jobs.batch": "1e3"},
            "used": {"requests.cpu": "1500m"},
            "reserved": {"requests.cpu": "500m"},
            "pending": {"pods": "12"},
        }
    ],
    "reservations": _RESERVATION,
    "podsResourceVersion": "41234",
    "podsBarrier": "40017",
    "serial": 7,
    "summary": "",
    "conditions": [{"type": "Counted", "status": "True", "reason": "R", "message": "m"}],
}


def seeds_of(target: str) -> Sequence[bytes]:
    """Return what a target begins with, what was answered wrongly last."""
    kept = sorted((CORPUS / target).glob("*.bin")) if (CORPUS / target).is_dir() else []
    return (*_VALID[target], *(each.read_bytes() for each in kept))


def _reviews() -> tuple[bytes, ...]:
    return (encoded(a_review()), *map(recorded, recorded_names()))


def _requests() -> tuple[bytes, ...]:
    body = encoded(a_review())
    length = b"Content-Length: %d\r\n\r\n" % len(body)
    chunks = b"%x;x=y\r\n%s\r\n0\r\nA: b\r\n\r\n" % (len(body), body)
    return (
        _HEAD + length + body,
        _HEAD + b"Expect: 100-continue\r\n" + length + body,
        _HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunks,
        _HEAD + b"\r\n" + _HEAD + length + body,
    )


def _documents() -> tuple[bytes, ...]:
    pod = encode_json(a_pod())
    shipped = _CHECKOUT.glob("manifests/base/*/*.yaml")
    return (
        pod,
        gzip.compress(pod, mtime=0),
        b'{"apiVersion": "v1", "kind": "List", "items": [' + pod + b"]}",
        b"a: &x {b: [1, 0x1f, 1e3, .inf, ~]}\n---\nc: *x\nd: |\n  text\n",
        *(each.read_bytes() for each in sorted(shipped)),
    )


def _configurations() -> tuple[bytes, ...]:
    shipped = (_CHECKOUT / "manifests/base/configuration").glob("*.yaml")
    return (
        b"apiVersion: deferredquota.io/v1alpha1\nkind: Configuration\ngating: auto\n",
        b'{"deferredResources": ["requests.cpu"], "limits": {"logAllowedEvery": 3}}',
        *(each.read_bytes() for each in sorted(shipped)),
    )


def _certificate_files() -> tuple[bytes, ...]:
    foreign = a_foreign_certificate(names=("localhost",))
    return (
        CA.certificate + CA.key,
        _SERVING.certificate + CA.certificate + _SERVING.key,
        foreign.certificate + foreign.key,
        joined(CA.certificate, OTHER_CA.certificate, foreign.certificate),
    )


def _secrets() -> tuple[bytes, ...]:
    ca, tls = ca_secret(_HELD, "team-a"), tls_secret(_HELD, "team-a")
    return (json.dumps([ca, tls]).encode(), json.dumps([ca, None]).encode(), b"[null, null]")


_VALID: Mapping[str, Sequence[bytes]] = {
    "review": _reviews(),
    "decision": _reviews(),
    "framing": _requests(),
    "documents": _documents(),
    "configuration": _configurations(),
    "ledger": (encode_json(_LEDGER), encode_json({**_LEDGER, "reservations": ""})),
    "certificate-files": _certificate_files(),
    "secrets": _secrets(),
}
