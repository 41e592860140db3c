"""Answers of Kubernetes' own code, read from `tests/vectors`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from webhook.jsonfields.encoding import decode_json

VECTORS = Path(__file__).parent.parent / "vectors"


@dataclass(frozen=True, slots=True)
class PodAnswer:
    """What Kubernetes 1.36.2 says of one pod."""

    raw: Mapping[str, object]
    """As a manifest."""
    pod: Mapping[str, object]
    """After API defaulting."""
    now: str
    usage: Mapping[str, str]
    qos: str


def pod_answers() -> list[PodAnswer]:
    """All answers about pods, at least one."""
    lines = (VECTORS / "pods.jsonl").read_bytes().splitlines()
    return [_pod_answer(decode_json(line)) for line in lines]


def _pod_answer(row: object) -> PodAnswer:
    match row:
        case {
            "raw": dict(raw),
            "pod": dict(pod),
            "now": str(now),
            "usage": dict(usage),
            "qos": qos,
        }:
            return PodAnswer(raw, pod, now, usage, str(qos))
        case _:
            raise AssertionError("not an answer about a pod")
