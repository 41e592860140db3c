"""Quotas are edited, deleted and made anew under the binds."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from tests.controlplane.rest import RestError
from tests.torture.load import shapes
from tests.torture.load.shapes import Space
from tests.torture.observer.amounts import NANO, billionths
from tests.torture.world import Incident, World, pick_space


def any_quota(
    world: World, rng: random.Random, incident: Incident, names: Sequence[str] = ()
) -> tuple[Space, str, str]:
    """Choose a quota: its namespace, name and path; and say which."""
    space = pick_space(world, rng)
    name = rng.choice(names or ("all", "busy", "gold", "long", "other", "short"))
    incident.namespaces, incident.detail = (space.name,), f"{space.name}/{name}"
    return space, name, f"{space.path}/resourcequotas/{name}"


def edit_hard(world: World, rng: random.Random, incident: Incident) -> None:
    """Raise a quota's limits, or lower them, also below what is used; then restore them."""
    space, name, path = any_quota(world, rng, incident)
    factor = rng.choice((0.2, 0.5, 0.8, 1.3, 2.0))
    incident.detail += f" times {factor}"
    spec = shapes.quota_specs(space)[name]
    with world.claim(path):
        for _ in range(rng.randrange(1, 4)):
            world.insist("patch", path, {"spec": {"hard": scaled(spec["hard"], factor)}})
            world.wait(rng.uniform(0.05, 4))
            world.insist("patch", path, {"spec": {"hard": spec["hard"]}})
            world.wait(rng.uniform(0.05, 2))


def scaled(hard: Mapping[str, str], factor: float) -> dict[str, str]:
    """Multiply limits, except of what stays with the API server."""
    thousandths = Fraction(factor).limit_denominator(1000) * 1000 / NANO
    return {
        key: text if key == "pods" else f"{int(billionths(text) * thousandths)}m"
        for key, text in hard.items()
    }


def edit_selector(world: World, rng: random.Random, incident: Incident) -> None:
    """Let a quota select other pods, and then the former ones again."""
    space, name, path = any_quota(world, rng, incident, ("gold", "other"))
    spec = shapes.quota_specs(space)[name]
    changed = rng.choice([each for each in shapes.SCOPED_ANEW if "scopeSelector" in each])
    with world.claim(path):
        world.insist("patch", path, {"spec": changed})
        world.wait(rng.uniform(0.05, 5))
        world.insist("patch", path, {"spec": {"scopeSelector": spec["scopeSelector"]}})


def remake_quota(world: World, rng: random.Random, incident: Incident) -> None:
    """Delete a quota and make it anew with other scopes; then with its own."""
    space, name, path = any_quota(world, rng, incident, ("gold", "long", "short"))
    spec = shapes.quota_specs(space)[name]
    other = {"hard": spec["hard"], **rng.choice(shapes.SCOPED_ANEW)}
    with world.claim(path):
        for each in (other, spec):
            _remake(world, space, name, each, rng.choice((0.0, 0.0, 0.5, 3.0)))
            world.wait(rng.uniform(0.1, 4))


def take_quota_away(world: World, rng: random.Random, incident: Incident) -> None:
    """Delete a quota and make it anew as it was."""
    space, name, path = any_quota(world, rng, incident)
    with world.claim(path):
        _remake(world, space, name, shapes.quota_specs(space)[name], rng.choice((0.0, 1.0, 6.0)))


def exclude_quota(world: World, rng: random.Random, incident: Incident) -> None:
    """Leave a quota to the API server, and take it back."""
    _, _, path = any_quota(world, rng, incident, ("busy", "gold", "long", "short"))
    annotation = "deferredquota.io/exclude"
    with world.claim(path):
        for value in ("true", None):
            world.insist("patch", path, {"metadata": {"annotations": {annotation: value}}})
            world.wait(rng.uniform(0.1, 5))


def edit_elastic_quota(world: World, rng: random.Random, incident: Incident) -> None:
    """Raise and lower what a namespace lends, also below what others borrow; or take it away."""
    space = rng.choice([each for each in world.spaces if each.shares_cluster_quota])
    incident.namespaces, incident.detail = (space.name,), f"{space.name}/elastic"
    collection = shapes.elastic_quotas(space)
    path = f"{collection}/elastic"
    with world.claim(path):
        for _ in range(rng.randrange(1, 4)):
            least = rng.choice(("0", "1Gi", "1500M", "3Gi"))
            world.insist("patch", path, {"spec": {"min": {"memory": least}}})
            world.wait(rng.uniform(0.05, 4))
        if rng.random() < 0.3:
            world.insist("delete", path)
            world.wait(rng.uniform(0.05, 3))
            world.insist("create", collection, shapes.elastic_quota())
        world.insist("patch", path, {"spec": shapes.elastic_quota()["spec"]})


def _remake(world: World, space: Space, name: str, spec: dict[str, Any], pause: float) -> None:
    collection = f"{space.path}/resourcequotas"
    try:
        world.insist("delete", f"{collection}/{name}")
    except RestError as err:
        if err.status != 404:
            raise
    world.wait(pause)
    try:
        world.insist("create", collection, shapes.quota(name, spec))
    except RestError as err:
        if err.status != 409:
            raise
