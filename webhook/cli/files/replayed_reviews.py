"""Recorded AdmissionReviews, answered by the engine on a snapshot, and summed for each workload.

A pod whose creation is allowed is stored, without a gate; one whose bind is allowed is bound. So a
bind finds its pod, and what one takes the next one finds taken.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from webhook.admission.deadline import DEFAULT_TIMEOUT_SECONDS, Deadline
from webhook.admission.handlers.dispatch import ROUTES
from webhook.admission.patch_builder import PatchOperation, encode_patch
from webhook.admission.review import (
    AdmissionRequest,
    AdmissionResponse,
    Denied,
    MalformedReviewError,
    Phase,
    decode_review,
)
from webhook.cli.files.configuration import read_configuration
from webhook.cli.files.snapshots import read_cluster, running_engine
from webhook.fakecluster.storage import FakeClient, FakeCluster
from webhook.jsonfields.encoding import InvalidJsonError, decode_json
from webhook.jsonfields.fields import InvalidFieldError
from webhook.kube.api import PODS, ApiError, NotFoundError, Object
from webhook.kube.codec import decode_object, encode
from webhook.kube.patches import apply_patch, check_operations
from webhook.operations.replay.history import workload_of
from webhook.runtime import Engine

_CREATE_POD: Final = "pods", "CREATE"
_BINDS: Final = frozenset({("pods/binding", "CREATE"), ("bindings", "CREATE")})


@dataclass(frozen=True, slots=True, order=True)
class Answered:
    """Requests of one workload that were answered alike."""

    workload: str
    """`namespace/Kind/name`; of an object that is no pod its own."""
    request: str
    """Such as `CREATE pods/binding`."""
    decision: str


@dataclass(slots=True)
class ReviewSums:
    """Sums of the answers."""

    counts: Counter[Answered] = field(default_factory=Counter)
    examples: dict[Answered, str] = field(default_factory=dict)
    """The first denial of each."""
    problems: list[str] = field(default_factory=list)
    """Lines that are no review."""


def is_review(line: bytes) -> bool:
    """Return whether a line of a file is an AdmissionReview."""
    try:
        raw = decode_json(line)
    except InvalidJsonError:
        return False
    return isinstance(raw, Mapping) and raw.get("kind") == "AdmissionReview"


def replay_reviews(
    files: Iterable[tuple[Path, Iterator[bytes]]],
    snapshots: tuple[Path, ...],
    config: Path | None,
) -> ReviewSums:
    """Answer all reviews in their order.

    Raises:
        InputError: The snapshot or the configuration cannot be read.
    """
    cluster, sums = read_cluster(snapshots), ReviewSums()
    with running_engine(cluster, read_configuration(config)) as engine:
        for file, lines in files:
            for number, line in enumerate(lines, start=1):
                if not line.strip():
                    continue
                try:
                    _replay(line, engine, cluster, sums)
                except MalformedReviewError as err:
                    sums.problems.append(f"{file}: line {number}: {err.detail}")
                except InvalidFieldError as err:
                    sums.problems.append(f"{file}: line {number}: {err}")
    return sums


def _replay(line: bytes, engine: Engine, cluster: FakeCluster, sums: ReviewSums) -> None:
    client = FakeClient(cluster)
    request, answers = _answers(line, engine)
    workload = f"{request.namespace}/{_workload(request, client)}"
    denial = next((one for one in answers if isinstance(one, Denied)), None)
    decisions = [one.decision for one in answers] or ["not-asked"]
    decision = decisions[-1] if denial is not None or "gated" not in decisions else "gated"
    key = Answered(workload, f"{request.operation} {request.path}", decision)
    sums.counts[key] += 1
    if denial is not None:
        sums.examples.setdefault(key, denial.message)
    elif not request.dry_run:
        _store(request, client, cluster)


def _answers(line: bytes, engine: Engine) -> tuple[AdmissionRequest, Sequence[AdmissionResponse]]:
    """Return what both webhooks answer, as far as they are asked; a denial is the last.

    The validating one is asked about a Binding as the mutating one leaves it; a pod gets no gate.
    """
    request, answers = decode_review(line, Phase.VALIDATING), list[AdmissionResponse]()
    for phase in (Phase.MUTATING, Phase.VALIDATING):
        asked = replace(request, phase=phase)
        if (phase, asked.group, asked.path, asked.operation) not in ROUTES:
            continue
        answer = engine.decide(asked, Deadline(time.monotonic() + DEFAULT_TIMEOUT_SECONDS))
        answers.append(answer)
        if isinstance(answer, Denied):
            break
        if answer.patch and (asked.path, asked.operation) in _BINDS:
            request = replace(request, object=_patched(request.object or {}, answer.patch))
    return request, answers


def _patched(obj: Object, patch: Sequence[PatchOperation]) -> Object:
    operations = check_operations(decode_json(encode_patch(patch)))
    return apply_patch(decode_object(encode(obj)), operations)


def _workload(request: AdmissionRequest, client: FakeClient) -> str:
    if request.resource != "pods" and (request.path, request.operation) not in _BINDS:
        return f"{request.kind.kind}/{request.name}"
    pod: Object | None = request.object if request.kind.kind == "Pod" else None
    if pod is None:
        try:
            pod = client.get(PODS, request.name, namespace=request.namespace)
        except NotFoundError:
            return f"Pod/{request.name}"
    return workload_of(pod)


def _store(request: AdmissionRequest, client: FakeClient, cluster: FakeCluster) -> None:
    if request.object is None:
        return
    try:
        if (request.path, request.operation) == _CREATE_POD:
            cluster.load([(PODS, request.object)])
        elif (request.path, request.operation) in _BINDS:
            client.bind(request.object, namespace=request.namespace)
    except ApiError:
        return  # it is there already, or not any more: the answer stands
