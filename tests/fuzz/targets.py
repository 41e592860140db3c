"""One target for each reader of bytes from outside: it fails where the reader is wrong.

A reader is wrong where it raises an error that its docstring does not name, or where what it has
read does not hold what a caller relies on: an answer that an API server would refuse, a request
that depends on how its bytes were cut, a ledger that is not read back as it was written.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeAlias, cast

from tests.admission.handlers.harness import a_namespace, new_cluster
from tests.admission.validity import response_of
from tests.reactions import ReactiveClient
from tests.tls.certificates import NOW
from webhook.admission.deadline import Deadline
from webhook.admission.review import (
    Allowed,
    MalformedReviewError,
    Phase,
    decode_review,
    encode_review,
)
from webhook.admission.serving.framing import Progress, RequestBuffer
from webhook.config import ConfigurationError
from webhook.config.schema import load_configuration
from webhook.jsonfields.encoding import InvalidJsonError, decode_json, encode_json
from webhook.jsonfields.fields import InvalidFieldError
from webhook.kube.api import NAMESPACES, Object
from webhook.kube.files.documents import SnapshotError, flatten_lists, read_documents
from webhook.kube.files.snapshot_format import unpacked
from webhook.policy import check_configuration
from webhook.quota.ledger.ledger_codec import ledger_from_status, ledger_status
from webhook.runtime import Engine
from webhook.telemetry.metrics import Metrics
from webhook.tls.bundles import certificate_set, certificates_only, joined, trusted
from webhook.tls.issue import Issued, IssueError, issue_serving
from webhook.tls.pair import (
    CertificateFileError,
    issued_problems,
    names_of,
    pair_problems,
    read_chain,
)
from webhook.tls.rotation import Surroundings, next_step, phase_of
from webhook.tls.rotation_store import ForeignCertificatesError, parse_secrets, spec_for

Target: TypeAlias = Callable[[bytes], None]

_BODY_LIMIT = 1 << 16
_NAMES = ("localhost",)
_CHUNK = re.compile(rb"([0-9a-fA-F]{1,12})[ \t]*(?:;[^\r]*)?\r\n")


def review(data: bytes) -> None:
    """Read a review, and answer it in words that an API server takes."""
    for phase in Phase:
        with contextlib.suppress(MalformedReviewError):
            request = decode_review(data, phase)
            _check_answer(data, encode_review(request, Allowed(decision="not-charged")), phase)


def decision(data: bytes) -> None:
    """Decide a review by all handlers, in a cluster with one namespace that is opted in."""
    for phase in Phase:
        with contextlib.suppress(MalformedReviewError):
            request = decode_review(data, phase)
            answer = running_engine().decide(request, Deadline(time.monotonic() + 10))
            _check_answer(data, encode_review(request, answer), phase)


def framing(data: bytes) -> None:
    """Find the same requests whatever pieces their bytes come in, and lose none of the bytes."""
    whole = _requests_in(iter([data]))
    assert _requests_in(data[at : at + 7] for at in range(0, len(data), 7)) == whole
    half = len(data) // 2
    assert _requests_in(iter([data[:half], data[half:]])) == whole


def documents(data: bytes) -> None:
    """Read a manifest or a snapshot, compressed or not."""
    with contextlib.suppress(SnapshotError):
        for document in read_documents("file", unpacked("file", data)):
            for path, value in flatten_lists(document):
                assert encode_json(value), path


def configuration(data: bytes) -> None:
    """Read a configuration file."""
    with contextlib.suppress(ConfigurationError, UnicodeDecodeError):
        load_configuration(data.decode(), "file", check=check_configuration)


def ledger(data: bytes) -> None:
    """Read the status of a ledger; what is read is the same after it was written."""
    with contextlib.suppress(InvalidFieldError, InvalidJsonError):
        read = ledger_from_status(decode_json(data))
        if read is not None:
            written = decode_json(encode_json(ledger_status(read)))
            assert ledger_from_status(written) == read


def certificate_files(data: bytes) -> None:
    """Judge a pair of files, and a bundle, with the same bytes as each of them."""
    with TemporaryDirectory() as directory:
        path = Path(directory) / "tls.pem"
        path.write_bytes(data)
        with contextlib.suppress(CertificateFileError):
            for certificate in read_chain(path):
                names_of(certificate)
        pair_problems(path, path, now=NOW, names=_NAMES)
    pair = Issued(data, data)
    if not issued_problems(pair, now=NOW, serving=False):
        with contextlib.suppress(IssueError):
            issue_serving(pair, dns_names=_NAMES, now=NOW, lifetime=timedelta(days=1))
    with contextlib.suppress(ValueError):
        certificates_only(data)
    assert certificate_set(joined(data)) == certificate_set(data)
    assert len(trusted(data)) >= len(certificate_set(data))


def secrets(data: bytes) -> None:
    """Decide the next step of a rotation by two Secrets, as a list of JSON objects."""
    with contextlib.suppress(InvalidJsonError, InvalidFieldError, ForeignCertificatesError):
        ca, tls = _pair_of_objects(decode_json(data))
        held = parse_secrets(ca, tls).held
        phase_of(held, NOW)
        next_step(held, spec_for("team-a"), Surroundings(now=NOW, bundles=[held.bundle]))


TARGETS: Mapping[str, Target] = {
    "review": review,
    "decision": decision,
    "framing": framing,
    "documents": documents,
    "configuration": configuration,
    "ledger": ledger,
    "certificate-files": certificate_files,
    "secrets": secrets,
}


def _check_answer(data: bytes, body: bytes, phase: Phase) -> None:
    try:
        sent = json.loads(data)
    except ValueError:  # the API server's decoder and ours read more than Python's: huge numbers
        return
    response_of(body, sent, phase)


@cache
def running_engine() -> Engine:
    """Return the engine that decides reviews; it runs until it is stopped."""
    cluster = new_cluster()
    cluster.load([(NAMESPACES, a_namespace("rec"))])
    engine = Engine(ReactiveClient(cluster), Metrics())
    engine.start()
    assert engine.wait_until_ready(30) == []
    return engine


def _requests_in(pieces: Iterator[bytes]) -> tuple[list[tuple[bytes, bytes]], int | None]:
    """Return the requests in some bytes, and how many bytes are left; None where it is refused."""
    buffer = RequestBuffer(_BODY_LIMIT)
    found: list[tuple[bytes, bytes]] = []
    for piece in pieces:
        progress = buffer.feed(piece)
        while progress is Progress.COMPLETE and len(buffer):
            request = buffer.take()
            if not _is_whole(*request):
                return found, None  # handed on for the parser to refuse: the connection ends
            found.append(request)
            progress = buffer.progress()
        if progress not in (Progress.MORE, Progress.COMPLETE):
            return found, None
    return found, len(buffer)


def _is_whole(head: bytes, body: bytes) -> bool:
    if not head.endswith(b"\r\n\r\n") or head.count(b"\n") != head.count(b"\r\n"):
        return False
    if b"\r\ntransfer-encoding" not in head.lower() or not body:
        return True
    while (size := _CHUNK.match(body)) is not None and int(size[1], 16):
        body = body[size.end() + int(size[1], 16) + 2 :]
    return size is not None and body.endswith(b"\r\n\r\n")


def _pair_of_objects(value: object) -> tuple[Object | None, Object | None]:
    if not isinstance(value, list) or len(value) != 2:
        raise InvalidFieldError("", "must be two objects")
    if not all(each is None or isinstance(each, dict) for each in value):
        raise InvalidFieldError("", "must be two objects")
    return cast("tuple[Object | None, Object | None]", tuple(value))
