"""Elastic quotas and plans to reclaim: tables for people, plain values for programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import click

from webhook.cli.exit_codes import printable
from webhook.cli.printing.output import print_structured, print_table
from webhook.operations.elastic.planning import PodPlan, amounts_of
from webhook.operations.elastic.reading import Elastic
from webhook.quota.amounts.resources import render, to_text
from webhook.quota.elastic.capacity import ElasticPod
from webhook.quota.elastic.elastic_quotas import ElasticQuota, is_charged
from webhook.quota.elastic.fair_share import Nanos, Pool, Usage, nanos

_FIGURES: Final = ("min", "max", "used", "borrowed", "lent", "guaranteed", "headroom")
_HEAD: Final = ("POOL", "QUOTA", "NAMESPACE", "RESOURCE", *map(str.upper, _FIGURES))


def print_quotas(elastic: Elastic, output: str) -> None:
    """Print the quotas as a table, JSON or YAML."""
    if output != "text":
        print_structured(quota_entries(elastic), output)
        return
    rows = list(_rows(elastic))
    if rows:
        print_table(_HEAD, rows, right=range(4, len(_HEAD)))
    else:
        click.echo(f"no elastic quotas{'' if elastic.is_whole else ' that may be read'}")


def quota_entries(elastic: Elastic) -> list[dict[str, object]]:
    """Return the quotas as plain values, by pool and name."""
    return [
        {
            "kind": quota.kind,
            "namespace": quota.namespace,
            "name": quota.name,
            "pool": pool.name,
            **{name: to_text(amounts_of(quota, amounts)) for name, amounts in figures.items()},
        }
        for pool, quota, figures in _figures(elastic)
    ]


def _figures(elastic: Elastic) -> Iterator[tuple[Pool, ElasticQuota, Mapping[str, Nanos]]]:
    usage = elastic.usage()
    for pool in elastic.pools.values():
        shared = {
            name: {
                "borrowed": pool.borrowed(name, usage),
                "lent": pool.lent(name, usage),
                "guaranteed": pool.guaranteed(name, usage),
            }
            for name in pool.resources
        }
        for key, quota in pool.quotas.items():
            used = {name: usage[key].get(name, 0) for name in _charged(quota)}
            found: dict[str, Nanos] = {
                "min": nanos(quota.min),
                "max": nanos(quota.max),
                "used": used,
            }
            for figure in ("borrowed", "lent", "guaranteed"):
                found[figure] = {
                    name: each[figure][key] for name, each in shared.items() if key in each[figure]
                }
            found["headroom"] = _headroom(pool, quota, usage)
            yield pool, quota, found


def _charged(quota: ElasticQuota) -> list[str]:
    return sorted(filter(is_charged, quota.names))


def _headroom(pool: Pool, quota: ElasticQuota, usage: Usage) -> dict[str, int]:
    """Return what the pods of a quota can take at once: up to its max, and what the pool has."""
    used = usage[quota.key]
    left: dict[str, int] = {}
    for name in _charged(quota):
        kept = quota.min.get(name)
        bounds = []
        if name in quota.max:
            bounds.append(quota.max[name].nano - used.get(name, 0))
        if name in pool.resources:
            lendable = quota.lendable.get(name, kept)
            held = 0 if kept is None or lendable is None else (kept - lendable).nano
            unused = max(0, held - used.get(name, 0))  # held for this quota, though not used
            bounds.append(pool.free(name, usage) + unused)
        left[name] = max(0, min(bounds))
    return left


def _rows(elastic: Elastic) -> Iterator[Sequence[str]]:
    for pool, quota, figures in _figures(elastic):
        texts = {name: to_text(amounts_of(quota, amounts)) for name, amounts in figures.items()}
        for resource in sorted(quota.names):
            yield (
                pool.name,
                quota.account,
                ",".join(quota.namespaces),
                resource,
                *(texts[name].get(resource, "-") for name in _FIGURES),
            )


def print_plan(found: PodPlan, output: str) -> None:
    """Print a plan as text, JSON or YAML."""
    if output != "text":
        print_structured(_plan_entry(found), output)
        return
    plan = found.plan
    verdict = "yes" if plan.is_possible else "no"
    click.echo(click.style(f"possible: {verdict}, claim: {plan.claim}", bold=True))
    click.echo(printable(found.reason))
    if plan.victims:
        click.echo()
        print_table(
            ("NAMESPACE", "POD", "QUOTA", "NODE", "FREES"),
            [
                (
                    pod.namespace,
                    pod.name,
                    quota.account,
                    pod.node,
                    render(amounts_of(quota, pod.amounts)),
                )
                for pod, quota in _victims(found)
            ],
        )


def _plan_entry(found: PodPlan) -> dict[str, object]:
    plan = found.plan
    return {
        "possible": plan.is_possible,
        "claim": plan.claim.value,
        "short": list(plan.shortage.resources),
        "victims": [
            {
                "namespace": pod.namespace,
                "name": pod.name,
                "quota": quota.account,
                "node": pod.node,
                "frees": to_text(amounts_of(quota, pod.amounts)),
            }
            for pod, quota in _victims(found)
        ],
        "reason": found.reason,
    }


def _victims(found: PodPlan) -> Iterator[tuple[ElasticPod, ElasticQuota]]:
    for pod in found.plan.victims:
        quota = found.elastic.quota_of(pod.namespace)
        if quota is not None:
            yield pod, quota
