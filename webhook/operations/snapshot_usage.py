"""Usage of quotas as the pods of a snapshot have it, where no ledger is in the snapshot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Final

from webhook.jsonfields.reader import FieldReader
from webhook.kube.api import NAMESPACES, RESOURCE_QUOTAS
from webhook.kube.metadata import object_namespace
from webhook.operations.cluster_quotas import SharedQuota, concerning, quotas_of, shared_quotas
from webhook.operations.counting import counted_ledger
from webhook.operations.explain.session import Session
from webhook.operations.reading import parted, read_pod
from webhook.policy import compile_policy
from webhook.quota.charging.deferral import deferred_quotas
from webhook.quota.ledger.ledger import Ledger
from webhook.quota.objects.model import Pod
from webhook.quota.objects.quota_bounds import counted_quotas, undecided_by
from webhook.state.well_known import DEFERRED_MODE, MODE_LABEL

COUNTED_FROM_PODS: Final = (
    "quota ledgers: the snapshot has none: used is counted from its pods that have a node, and what"
    " is reserved is not known"
)
NOT_COUNTED: Final = (
    "the snapshot has neither quota ledgers nor pods (kubectl get ql,pods -A -o yaml): what quotas"
    " have used is not known"
)


def opted_in(namespaces: Mapping[str, Mapping[str, str]]) -> dict[str, Mapping[str, str]]:
    """Return the namespaces that defer their quotas, of some with their labels."""
    return {
        name: labels
        for name, labels in namespaces.items()
        if labels.get(MODE_LABEL) == DEFERRED_MODE
    }


def namespaces_of(session: Session) -> dict[str, Mapping[str, str]]:
    """Return the namespaces of a snapshot that no configuration exempts, with their labels.

    Of one that only its quotas name no label is known.

    Raises:
        InvalidFieldError: The metadata of an object cannot be read.
    """
    quotas = session.readable(RESOURCE_QUOTAS, "the quotas") or ()
    raws = session.readable(NAMESPACES, "the namespaces") or ()
    found: dict[str, Mapping[str, str]] = {object_namespace(raw): {} for raw in quotas}
    for raw in raws:
        metadata = FieldReader(raw).child("metadata")
        found[metadata.text("name")] = metadata.string_map("labels")
    return {name: found[name] for name in sorted(found.keys() - session.options.exempt)}


def ledgers_from_pods(
    session: Session, namespaces: Mapping[str, Mapping[str, str]], now: datetime | None
) -> Iterator[tuple[str, Ledger]]:
    """Yield ledgers of namespaces, given with their labels, as their pods are counted.

    None of those whose pods the snapshot does not have.
    """
    options = session.options
    policy = compile_policy(options.configuration, system_namespace=options.system_namespace)
    none: tuple[SharedQuota, ...] = ()
    shared = session.read(lambda: shared_quotas(session.api), none, "cluster quotas")
    for name, labels in namespaces.items():
        listed = session.pods(name)
        if listed is None:
            continue
        pods, odd = parted(map(read_pod, listed), Pod)
        session.unknown.extend(odd)
        quotas = session.quotas(name)
        session.unknown.extend(
            f"nothing is bound in namespace {name}: {reason}"
            for reason in undecided_by(quotas).values()
        )
        every = (*counted_quotas(quotas), *quotas_of(concerning(shared, name, labels)))
        deferred = deferred_quotas(
            every, policy.deferred_keys, holds_terminating=policy.holds_terminating
        )
        yield name, counted_ledger(deferred, pods, now)
