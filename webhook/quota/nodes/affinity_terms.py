"""Terms of pod affinity: which pods one selects, and over which label of their nodes.

Source: kubernetes v1.36, kube-scheduler/framework/types.go newAffinityTerm, AffinityTerm.Matches;
pkg/registry/core/pod/strategy.go applyMatchLabelKeysAndMismatchLabelKeys.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from webhook.quota.amounts.resource_reader import ResourceReader
from webhook.quota.objects.label_selectors import LabelSelector, Requirement, read_selector_at

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_NO_LABELS: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Identity:
    """Fields of a pod that selectors look at."""

    namespace: str
    labels: Mapping[str, str]
    is_deleting: bool = False


@dataclass(frozen=True, slots=True)
class AffinityTerm:
    """One term of an affinity or anti-affinity."""

    namespaces: frozenset[str]
    namespace_selector: LabelSelector | None
    """None selects no namespaces."""
    selector: LabelSelector | None
    """None selects no pods."""
    key: str
    weight: int = 0

    @property
    def selects_namespaces(self) -> bool:
        """Whether labels of namespaces decide; an empty selector selects all of them."""
        selector = self.namespace_selector
        return selector is not None and bool(selector.labels or selector.requirements)

    def selects(self, pod: Identity, namespace_labels: Mapping[str, str] = _NO_LABELS) -> bool:
        """Return whether the pod is meant, whose namespace has these labels.

        Labels are left out where `in_namespaces` has looked for namespaces already. A selector
        that needs no label then selects every namespace, as the scheduler has it.
        """
        if pod.namespace not in self.namespaces and (
            self.namespace_selector is None or not self.namespace_selector.matches(namespace_labels)
        ):
            return False
        return self.selector is not None and self.selector.matches(pod.labels)

    def weighing(self, weight: int) -> AffinityTerm:
        """Return the term with another weight."""
        return replace(self, weight=weight)

    def in_namespaces(self, labels: Mapping[str, Mapping[str, str]]) -> AffinityTerm:
        """Return the term with the names of the namespaces that it selects among these."""
        selector = self.namespace_selector
        if selector is None or not self.selects_namespaces:
            return self
        selected = {name for name, those in labels.items() if selector.matches(those)}
        return replace(self, namespaces=self.namespaces | selected)


@dataclass(frozen=True, slots=True)
class AffinityTerms:
    """All terms of one pod."""

    affinity: tuple[AffinityTerm, ...]
    anti_affinity: tuple[AffinityTerm, ...]
    preferred: tuple[AffinityTerm, ...]
    preferred_anti: tuple[AffinityTerm, ...]

    def in_namespaces(self, labels: Mapping[str, Mapping[str, str]]) -> AffinityTerms:
        """Return the terms with the names of the namespaces that they select among these."""
        return AffinityTerms(
            *[
                tuple(term.in_namespaces(labels) for term in terms)
                for terms in (
                    self.affinity,
                    self.anti_affinity,
                    self.preferred,
                    self.preferred_anti,
                )
            ]
        )


def read_affinity_terms(spec: ResourceReader, pod: Identity) -> AffinityTerms:
    """Read the terms of a pod from its spec."""
    affinity = spec.child("affinity")
    to_pods, from_pods = affinity.child("podAffinity"), affinity.child("podAntiAffinity")
    return AffinityTerms(
        _required(to_pods, pod),
        _required(from_pods, pod),
        _preferred(to_pods, pod),
        _preferred(from_pods, pod),
    )


def with_label_keys(
    selector: LabelSelector | None,
    labels: Mapping[str, str],
    *,
    match: Iterable[str] = (),
    mismatch: Iterable[str] = (),
) -> LabelSelector | None:
    """Return the selector with what the pod's own labels say under these keys.

    An API server has written that into the selector of a pod that it stored; once more changes
    nothing.
    """
    if selector is None:
        return None
    keys = [*((key, "In") for key in match), *((key, "NotIn") for key in mismatch)]
    added = [Requirement(key, how, (labels[key],)) for key, how in keys if key in labels]
    return replace(selector, requirements=(*selector.requirements, *added))


def _required(affinity: ResourceReader, pod: Identity) -> tuple[AffinityTerm, ...]:
    return tuple(_term(one, pod) for one in affinity.children(_REQUIRED))


def _preferred(affinity: ResourceReader, pod: Identity) -> tuple[AffinityTerm, ...]:
    return tuple(
        _term(one.child("podAffinityTerm"), pod).weighing(one.integer("weight") or 0)
        for one in affinity.children(_PREFERRED)
    )


def _term(term: ResourceReader, pod: Identity) -> AffinityTerm:
    namespaces = frozenset(term.strings("namespaces"))
    if not namespaces and not term.has("namespaceSelector"):
        namespaces = frozenset({pod.namespace})
    return AffinityTerm(
        namespaces,
        read_selector_at(term, "namespaceSelector"),
        with_label_keys(
            read_selector_at(term, "labelSelector"),
            pod.labels,
            match=term.strings("matchLabelKeys"),
            mismatch=term.strings("mismatchLabelKeys"),
        ),
        term.text("topologyKey"),
    )
