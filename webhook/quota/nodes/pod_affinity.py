"""Affinity and anti-affinity to pods: of a pod to others, and of these to it.

Source: kubernetes v1.36, pkg/scheduler/framework/plugins/interpodaffinity;
kube-scheduler/framework/types.go AffinityTerm.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final, TypeAlias

from webhook.quota.nodes.affinity_terms import AffinityTerm, AffinityTerms, read_affinity_terms
from webhook.quota.nodes.filters import MAX_NODE_SCORE, NodeCheck
from webhook.quota.nodes.model import NodeInfo, NodeView, PendingPod

_AFFINITY: Final = ("node(s) didn't match pod affinity rules",)
_ANTI_AFFINITY: Final = ("node(s) didn't match pod anti-affinity rules",)
_EXISTING: Final = ("node(s) didn't satisfy existing pods anti-affinity rules",)
_REQUIRED_WEIGHT: Final = 1
"""By which required affinity of other pods to the pod counts in the score."""

_Domain: TypeAlias = tuple[str, str]
"""A topology key, and the value that a node has for it."""


@dataclass(frozen=True, slots=True)
class _Counts:
    """Numbers of pods that terms match, by domain."""

    affinity: Mapping[_Domain, int]
    anti_affinity: Mapping[_Domain, int]
    existing: Mapping[_Domain, int]
    """Of pods with anti-affinity to the pod."""


def filter_pod_affinity(pod: PendingPod, view: NodeView) -> NodeCheck | None:
    """Refuse nodes by required affinity and anti-affinity, of the pod and of those that run."""
    terms = _merged(read_affinity_terms(pod.spec, pod.identity), view)
    counts = _count(pod, view, terms)
    if not (terms.affinity or terms.anti_affinity or counts.existing):
        return None
    is_first = not counts.affinity and all(term.selects(pod.identity) for term in terms.affinity)

    def reasons(node: NodeInfo) -> tuple[str, ...]:
        if not _has_affinity(node, terms.affinity, counts.affinity, is_first=is_first):
            return _AFFINITY
        if any(counts.anti_affinity.get(one) for one in _domains(node, terms.anti_affinity)):
            return _ANTI_AFFINITY
        if counts.existing and any(one in counts.existing for one in node.labels.items()):
            return _EXISTING
        return ()

    return NodeCheck(reasons, unknown=_unknown(terms, view))


def score_pod_affinity(
    pod: PendingPod, view: NodeView, nodes: Sequence[NodeInfo]
) -> Sequence[int] | None:
    """Prefer nodes by preferred terms of the pod, and by terms of other pods that match it."""
    terms = _merged(read_affinity_terms(pod.spec, pod.identity), view)
    own = [*terms.preferred, *map(_negative, terms.preferred_anti)]
    weights: dict[_Domain, int] = {}
    for term, node in chain(_matched_by(own, view), _matching(pod, view)):
        for one in _domains(node, [term]):
            weights[one] = weights.get(one, 0) + term.weight
    if not weights:
        return None
    return _scaled([sum(weights.get(one, 0) for one in node.labels.items()) for node in nodes])


def _matched_by(
    terms: Sequence[AffinityTerm], view: NodeView
) -> Iterator[tuple[AffinityTerm, NodeInfo]]:
    """Yield each of the terms for every pod that it selects, with the node of that pod."""
    if not terms:
        return
    for node in view.infos:
        for identity in node.identities:
            for term in terms:
                if term.selects(identity):
                    yield term, node


def _matching(pod: PendingPod, view: NodeView) -> Iterator[tuple[AffinityTerm, NodeInfo]]:
    """Yield the terms of pods that run which select the pod, with the nodes of these."""
    labels = (view.namespace_labels or {}).get(pod.identity.namespace, {})
    for existing, places in view.affinities:
        for term in _of_existing(existing):
            if term.selects(pod.identity, labels):
                for node in places:
                    yield term, node


def _count(pod: PendingPod, view: NodeView, terms: AffinityTerms) -> _Counts:
    counts = _Counts({}, {}, _existing_anti_affinity(pod, view))
    if not (terms.affinity or terms.anti_affinity):
        return counts
    affinity: dict[_Domain, int] = {}
    anti_affinity: dict[_Domain, int] = {}
    for node in view.infos:
        for identity in node.identities:
            if terms.affinity and all(term.selects(identity) for term in terms.affinity):
                _add(affinity, _domains(node, terms.affinity))
            _add(
                anti_affinity,
                _domains(node, [one for one in terms.anti_affinity if one.selects(identity)]),
            )
    return _Counts(affinity, anti_affinity, counts.existing)


def _existing_anti_affinity(pod: PendingPod, view: NodeView) -> dict[_Domain, int]:
    labels = (view.namespace_labels or {}).get(pod.identity.namespace, {})
    counts: dict[_Domain, int] = {}
    for existing, places in view.affinities:
        matching = [one for one in existing.anti_affinity if one.selects(pod.identity, labels)]
        if matching:
            for node in places:
                _add(counts, _domains(node, matching))
    return counts


def _has_affinity(
    node: NodeInfo,
    terms: Sequence[AffinityTerm],
    counts: Mapping[_Domain, int],
    *,
    is_first: bool,
) -> bool:
    """Return whether all terms hold; the first of pods that want each other needs none of them."""
    domains = _domains(node, terms)
    if len(domains) < len(terms):
        return False
    return is_first or all(counts.get(one) for one in domains)


def _domains(node: NodeInfo, terms: Iterable[AffinityTerm]) -> list[_Domain]:
    """Return the domains of the node; none for a term whose label it does not have."""
    return [(term.key, value) for term in terms if (value := node.labels.get(term.key)) is not None]


def _add(counts: dict[_Domain, int], domains: Iterable[_Domain]) -> None:
    for one in domains:
        counts[one] = counts.get(one, 0) + 1


def _merged(terms: AffinityTerms, view: NodeView) -> AffinityTerms:
    """Return the pod's own terms with the names of the namespaces that they select."""
    labels = view.namespace_labels
    return terms if labels is None else terms.in_namespaces(labels)


def _unknown(terms: AffinityTerms, view: NodeView) -> str:
    """Name namespaces where a term selects them, and they are not known."""
    if view.namespace_labels is not None:
        return ""
    existing = (one for terms, _ in view.affinities for one in terms.anti_affinity)
    selecting = (*terms.affinity, *terms.anti_affinity, *existing)
    return "namespaces" if any(one.selects_namespaces for one in selecting) else ""


def _of_existing(terms: AffinityTerms) -> list[AffinityTerm]:
    """Return the terms of a pod that runs which count for another pod, with their weights."""
    required = [one.weighing(_REQUIRED_WEIGHT) for one in terms.affinity]
    return [*required, *terms.preferred, *map(_negative, terms.preferred_anti)]


def _negative(term: AffinityTerm) -> AffinityTerm:
    return term.weighing(-term.weight)


def _scaled(sums: Sequence[int]) -> list[int]:
    """Return scores from 0 for the least to 100 for the most, in floats as the scheduler's."""
    least, most = min(sums, default=0), max(sums, default=0)
    if most == least:
        return [0] * len(sums)
    difference = float(most - least)
    return [int(float(MAX_NODE_SCORE) * (float(one - least) / difference)) for one in sums]
