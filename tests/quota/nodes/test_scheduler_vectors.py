"""What pods take of their nodes, and scores by resources, beside the scheduler's own functions.

`tests/vectors/scheduler.jsonl` has the answers of v1.36.3 about 1,000 random pods, half of them as
a node reports them in the course of resizes (`PodInfo.CalculateResource`), and about nodes with
random amounts (`balancedResourceScorer`, `leastRequestedScore`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tests.quota.nodes.objects import assigned, pod
from tests.quota.oracle import VECTORS
from webhook.jsonfields.encoding import decode_json
from webhook.quota.nodes.fitting import judge_nodes
from webhook.quota.nodes.model import NodeView
from webhook.quota.nodes.requested import requested_of


def rows(key: str) -> list[dict[str, object]]:
    decoded = map(decode_json, (VECTORS / "scheduler.jsonl").read_bytes().splitlines())
    return [row for row in decoded if isinstance(row, dict) and key in row]


def test_there_are_answers() -> None:
    assert len(rows("pod")) == 1000
    assert len(rows("balanced")) > 900


def test_pods_take_what_the_scheduler_counts() -> None:
    for number, row in enumerate(rows("pod")):
        raw = row["pod"]
        assert isinstance(raw, dict)
        found = requested_of(raw)
        amounts = {name: one for name, one in found.amounts.items() if one and name != "pods"}
        assert amounts == row["requested"], number
        scored = (found.scored_cpu, found.scored_memory)
        assert scored == (row["scoredCpu"], row["scoredMemory"]), number


def test_scores_are_the_schedulers() -> None:
    for number, (row, view, wanted) in enumerate(_score_cases()):
        (fit,) = judge_nodes(wanted, view).fits
        found = (fit.plugins["NodeResourcesBalancedAllocation"], fit.plugins["NodeResourcesFit"])
        assert found == (row["balanced"], row["least"]), number


def _score_cases() -> Iterator[tuple[dict[str, object], NodeView, Mapping[str, object]]]:
    for row in rows("balanced"):
        match row:
            case {
                "allocatable": list(allocatable),
                "allocated": list(allocated),
                "requested": list(requested),
            }:
                difference = [
                    after - before for after, before in zip(requested, allocated, strict=True)
                ]
                node = {
                    "metadata": {"name": "n1"},
                    "status": {"allocatable": {**_amounts(allocatable), "pods": "9"}},
                }
                others = assigned([pod(requests=_amounts(allocated))])
                yield row, NodeView([node], others), pod(requests=_amounts(difference))


def _amounts(figures: Sequence[int]) -> dict[str, str]:
    cpu, memory = figures
    return {"cpu": f"{cpu}m", "memory": str(memory)}
