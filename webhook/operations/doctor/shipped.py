"""Digests of the shipped objects, to be compared with those in a cluster.

The manifests are no part of the package, so what stands in them is known by digests, which a test
compares with them. What the configuration lists is compared elsewhere, as are the namespaces that
are selected.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from webhook.jsonfields.fields import additions, mapping
from webhook.jsonfields.reader import FieldReader
from webhook.kube.api import Object
from webhook.operations.names import (
    CLUSTER_QUOTAS_POLICY,
    DEVICE_CLAIMS_POLICY,
    EXEMPT,
    GLASS_BREAKERS,
    IS_NOT_OURS,
    IS_OURS,
    KEYS,
    LEDGERS_POLICY,
    MARKS_ENTRY,
    MASK_ENTRY,
    MASK_POLICY,
    OWN_NAMESPACE_POLICY,
    SERVICE_ACCOUNTS_POLICY,
    SHAPE_ENTRY,
    STAMP_ENTRY,
    STAMP_POLICY,
    TRUSTED,
    UNGATED_ENTRY,
)
from webhook.state.webhook_selectors import WebhookSelector
from webhook.state.well_known import DEFAULT_NAMESPACE

DIGESTS: Final[Mapping[str, str]] = {
    SERVICE_ACCOUNTS_POLICY: "544156b472938833",
    OWN_NAMESPACE_POLICY: "19cdbc7fa0322b97",
    CLUSTER_QUOTAS_POLICY: "10867d2c93582773",
    LEDGERS_POLICY: "cad65e6f40d9a854",
    DEVICE_CLAIMS_POLICY: "af4110e01e0efcce",
    MASK_POLICY: "a9ca8c0a5da298b7",
    STAMP_POLICY: "953cfa1ddad90824",
}
"""What the shipped policies do, see `digest`."""

LISTS_KEYS: Final = "shows-deferred-resources"
"""The condition of the mask that lists what is deferred."""
CONDITIONS: Final[Mapping[str, Mapping[str, str]]] = {
    "assigned.deferredquota.io": {"has-node": "00c6d74db852b195"},
    "jobs.deferredquota.io": {"changes-the-spec": "e74629f52dc5f66f"},
    MARKS_ENTRY: {
        "is-not-the-controller": "5a1208d4dfe5cbfc",
        "touches-our-marks": "5988a6a033e777da",
    },
    MASK_ENTRY: {
        "is-not-excluded": "fe5f5e84b10a70b4",
        LISTS_KEYS: "bd8e34a4d7f50a94",
    },
    "resize.deferredquota.io": {"may-charge": "4e47bd1457156a0e"},
    SHAPE_ENTRY: {"has-no-node": "90984b2bbb52ab5d"},
    STAMP_ENTRY: {"has-no-uid": "0254d2ad8bf5bb91"},
    UNGATED_ENTRY: {"has-no-node": "90984b2bbb52ab5d"},
}
"""Entry → its conditions → their digests, see `edited_conditions`. An entry that is not here has
none."""

FILLED_IN: Final[Mapping[str, object]] = {
    "failurePolicy": "Fail",
    "matchPolicy": "Equivalent",
    "scope": "*",
}
"""Fields of policies and bindings → what the API server fills in. It fills in empty selectors,
too."""

_LISTS: Final = frozenset({IS_OURS, IS_NOT_OURS, KEYS, EXEMPT, TRUSTED, GLASS_BREAKERS, LISTS_KEYS})
"""Conditions and variables that list what is written at the installation."""
_LIST: Final = re.compile(r"\[(?:'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|[\s,])*\]")
_RULE_FIELDS: Final = ("apiGroups", "apiVersions", "operations", "resources", "resourceNames")
_PATCHES: Final = ("jsonPatch", "applyConfiguration")
_USER: Final = "system:serviceaccount:{}:"


def digest(spec: FieldReader) -> str:
    """Return what stands for all that a policy does, but for what the configuration lists."""
    constraints = spec.child("matchConstraints")
    rules = [
        {
            "scope": rule.text("scope") or "*",
            **{field: sorted(rule.strings(field)) for field in _RULE_FIELDS},
        }
        for rule in constraints.children("resourceRules")
    ]
    said = {
        "failurePolicy": spec.text("failurePolicy") or "Fail",
        "matchPolicy": constraints.text("matchPolicy") or "Equivalent",
        "objects": WebhookSelector.read(constraints.child("objectSelector")).is_empty,
        "excluded": len(constraints.children("excludeResourceRules")),
        "parameters": _parameters(spec),
        "reinvocation": spec.text("reinvocationPolicy"),
        "rules": rules,
        **{
            field: [_text(item) for item in spec.children(field)]
            for field in ("matchConditions", "variables", "validations")
        },
        "mutations": [
            [each.text("patchType"), *(_text(each.child(field)) for field in _PATCHES)]
            for each in spec.children("mutations")
        ],
    }
    return _hash(json.dumps(said, sort_keys=True))


def edited_conditions(
    name: str, node: FieldReader, system_namespace: str, configured: Sequence[FieldReader] = ()
) -> Mapping[str, bool]:
    """Return the conditions of an entry that are not the shipped ones.

    Args:
        name: The entry.
        node: What it is, or the spec of the policy in its place.
        system_namespace: The namespace of the installation, which expressions name.
        configured: Conditions that it may have besides.

    Returns:
        Name → whether it is there, and so may leave requests out; one that is not was shipped.
    """
    found = {
        one.text("name"): _hash(_as_shipped(_text(one), system_namespace))
        for one in node.children("matchConditions")
        if one.text("expression") != "true"  # it leaves nothing out: so the chart writes one
    }
    besides = {one.text("name"): _hash(_text(one)) for one in configured}
    wanted = {**CONDITIONS.get(name, {}), **{one: besides[one] for one in besides if one in found}}
    return {one: one in found for one in sorted(dict(found.items() ^ wanted.items()))}


def _as_shipped(text: str, system_namespace: str) -> str:
    """Return an expression with the users of the shipped namespace for those of another.

    What names the shipped one elsewhere is another program's, and no longer as shipped.
    """
    if system_namespace == DEFAULT_NAMESPACE:
        return text
    ours, shipped = _USER.format(system_namespace), _USER.format(DEFAULT_NAMESPACE)
    return text.replace(shipped, _USER.format("")).replace(ours, shipped)


def added(raw: Object, *path: str, known: Sequence[str]) -> Iterator[str]:
    """Yield the paths of the fields that some place of a policy or a binding has besides some."""
    place = raw
    for depth, name in enumerate(path):
        place = mapping(place.get(name), ".".join(path[: depth + 1]))
    return additions({name: place.get(name) for name in known}, place, FILLED_IN, ".".join(path))


def added_to_binding(raw: Object, *known: str) -> Iterator[str]:
    """Yield the paths of what a binding has besides the policy, namespaces, and some fields."""
    yield from added(raw, "spec", known=("policyName", "matchResources", *known))
    yield from added(raw, "spec", "matchResources", known=("namespaceSelector",))


def not_shipped(edited: Iterable[str]) -> str:
    """Return what is wrong with conditions."""
    return f"not those of this release, or changed: {', '.join(edited)}"


def _parameters(spec: FieldReader) -> Sequence[str] | bool:
    kind = spec.child("paramKind")
    return spec.has("paramKind") and [kind.text("apiVersion"), kind.text("kind")]


def _text(item: FieldReader) -> str:
    name, expression = item.text("name"), " ".join(item.text("expression").split())
    return f"{name}: {_LIST.sub('[]', expression) if name in _LISTS else expression}"


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
