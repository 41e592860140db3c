"""Templates out of the objects that an installation renders.

The objects are rendered with marks in the place of what installations differ in, so that the
templates differ where `render` writes something, and nowhere else. A mark becomes what computes
the value from the values of the chart, in `_helpers.tpl`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from webhook.config import MustSpecify, PageSettings, ReclaimMode
from webhook.install.chart.emitting import (
    Action,
    Block,
    Each,
    Given,
    Text,
    When,
    emit_documents,
    escaped,
)
from webhook.install.clients import KnownClients
from webhook.install.kustomizations import read_directory
from webhook.install.rendering import (
    API_PRIORITY,
    MANIFESTS,
    Mask,
    Rendered,
    configured,
    render,
)
from webhook.kube.api import JOBS, QUOTA_LEDGERS, Object
from webhook.kube.kinds import DEVICE_CLASSES
from webhook.operations.creation import (
    GATES_ALL,
    CreationRules,
    narrowed_entries,
)
from webhook.operations.names import (
    DEVICE_CLAIMS_POLICY,
    DEVICE_CLASS_MINOR,
    GATE_ENTRY,
    MASK_ENTRY,
    SHAPE_ENTRY,
    UNGATED_ENTRY,
)
from webhook.policy import Policy
from webhook.quota.charging.limited_resources import LimitedResource
from webhook.state.feature_gates import PROBE_MINOR
from webhook.state.well_known import (
    ALWAYS_GATING,
    AUTO_GATING,
    DEFAULT_NAMESPACE,
    INJECTED_ANNOTATIONS,
    NEVER_GATING,
)

Tree: TypeAlias = Any
"""A part of an object: dicts, lists and scalars, and what `emitting` has besides."""

POD_FIELDS: Final = ("imagePullSecrets", "nodeSelector", "tolerations")
"""Fields of pods that are values of the chart, and in no manifest."""

_IMAGE: Final = "image.chart.invalid"
_RESOURCE: Final = "requests.chart.invalid/resource"
_EXEMPT: Final = "exempt-in-chart"
_TRUSTED: Final = "trusted-in-chart"
_BREAKS_GLASS: Final = "breaks-glass-in-chart"
_GATING: Final = "gating-in-chart"
_PORT: Final = 65_000
_CLIENT: Final = "client-in-chart"
_CLIENT_VOLUME: Final = "client-ca"
_CLIENT_PEM: Final = "ca-of-clients-in-chart\n"
_CONFIGURATION: Final = "the configuration of the chart\n"
_DIGEST: Final = hashlib.sha256(_CONFIGURATION.encode()).hexdigest()[:16]

_MARKS: Final = re.compile(
    rf"\[[^\[\]]*'(?P<listed>{_RESOURCE}|{_EXEMPT}|{_TRUSTED}|{_BREAKS_GLASS})'[^\[\]]*\]"
    rf"|{_RESOURCE}|{_IMAGE}|{_DIGEST}|{_GATING}|{DEFAULT_NAMESPACE}"
)
"""A list in CEL with a mark in it, or a mark by itself."""
_DEFINITION: Final = "CustomResourceDefinition"
_ELSEWHERE: Final = frozenset({_DEFINITION, "Namespace", JOBS.kind})
"""Kinds that are not in the template of rights."""
_NETWORK_POLICY: Final = MANIFESTS / "components/network-policy"
_MONITORING: Final = MANIFESTS / "components/monitoring"
_CERT_MANAGER: Final = MANIFESTS / "components/cert-manager"
_API_PRIORITY: Final = MANIFESTS / API_PRIORITY
_RUNBOOK: Final = "runbook_url"
_NEVER: Final = f'eq (include "deferred-quota.gating" .) "{NEVER_GATING}"'
_IN_CLUSTER: Final = "not .Values.url"
_CLIENT_AUTH: Final = "(.Values.clientAuth | default dict)"
"""Values that `helm upgrade --reuse-values` leaves out after a release that had none of them."""
_CLIENTS_SHOWN: Final = f"{_CLIENT_AUTH}.ca"


def _helper(name: str) -> str:
    return f'include "deferred-quota.{name}" .'


def _since(minor: int) -> str:
    return f'semverCompare ">=1.{minor}.0-0" .Capabilities.KubeVersion.Version'


_SERVES_DEVICE_CLASSES: Final = (
    f'.Capabilities.APIVersions.Has "{DEVICE_CLASSES.api_version}/{DEVICE_CLASSES.kind}"'
)
_BY_POLICY: Final = f'eq ({_helper("creation")}) "policy"'
_ENTRIES_DECIDE: Final = _helper("entriesDecide")
_SOME_GATES: Final = f'eq ({_helper("gatesAll")}) "false"'
_IS_AUTO: Final = f'eq ({_helper("gating")}) "{AUTO_GATING}"'
_ANY_RESOURCE: Final = LimitedResource("pods", match_contains=("",))
_STRICT: Final = Policy(must_specify=MustSpecify.BIND)
_NARROWED: Final = {
    GATE_ENTRY: {
        f"and (not ({_SOME_GATES})) (not ({_IS_AUTO}))": CreationRules(
            gating=ALWAYS_GATING, policy=_STRICT
        ),
        f"and (not ({_SOME_GATES})) ({_IS_AUTO})": CreationRules(
            gating=AUTO_GATING, policy=_STRICT
        ),
    },
    # Helm does not know which pods a rule is about: the webhook is asked about all of them
    UNGATED_ENTRY: {
        _helper("needsQuotas"): CreationRules(policy=Policy(limited_resources=(_ANY_RESOURCE,)))
    },
}
"""Entry → condition under which policies leave something to it, and the rules of that case."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """What guards and what hides follow a change of the configuration one after the other."""

    prefix: str

    @property
    def left_out(self) -> str:
        """Namespaces that selectors leave out."""
        return _helper(f"{self.prefix}.leftOut")

    def expression(self, mark: str, listed: str | None) -> str:
        """Return what computes the value of a mark."""
        if listed is not None:
            return _helper(
                {
                    _RESOURCE: f"{self.prefix}.keys",
                    _EXEMPT: "guard.exempt",
                    _TRUSTED: "trusted",
                    _BREAKS_GLASS: "glassBreakers",
                }[listed]
            )
        return {
            _RESOURCE: _helper("guard.resources"),
            _IMAGE: _helper("image"),
            _DIGEST: _helper("configurationHash"),
            _GATING: _helper("gating"),
            DEFAULT_NAMESPACE: ".Release.Namespace",
        }[mark]


_GUARD: Final = _Kind("guard")
_MASK: Final = _Kind("mask")


def templates() -> dict[str, str]:
    """Return the templates, by the names of their files.

    Raises:
        InstallError: The manifests are not there, or not as they have to be.
    """
    guarding, hiding = _Marked.of("webhook", _GUARD), _Marked.of("policy", _MASK)
    cluster = guarding.filled(lambda each: each.cluster)
    definitions = [_kept(each) for each in cluster if each["kind"] == _DEFINITION]
    identities = guarding.filled(lambda each: each.identities)
    page = guarding.filled(lambda each: each.page)
    services = [each for each in page if each["kind"] == "Service"]
    configuration = guarding.filled(lambda each: configured(each.configuration, _CONFIGURATION))
    authority, *workloads = guarding.filled(lambda each: configured(each.workloads, _CONFIGURATION))
    reclaim = guarding.filled(lambda each: each.reclaim)
    plan = [each for each in reclaim if each["metadata"]["name"].endswith("-plan")]
    act = [each for each in reclaim if each not in plan]
    creation = guarding.filled(lambda each: each.creation)
    by_need = _Marked.of("webhook", _GUARD, AUTO_GATING).filled(lambda each: each.creation)
    gate_binding, auto_binding = map(_by_gating, creation[:4:2], by_need[:4:2])
    gate_policy, auto_policy, *must_specify = creation[1], *creation[3:]
    policies = read_directory(_NETWORK_POLICY)
    network = [_fill(each, each, _GUARD) for each in policies]
    rule, monitor = (_monitoring(_fill(one, one, _GUARD)) for one in read_directory(_MONITORING))
    return {
        "definitions": _file(each for each in definitions if _is_ours(each)),
        **{
            f"definition-{each['spec']['names']['plural']}": _file(
                [each], f'not (include "deferred-quota.isForeign" "{each["metadata"]["name"]}")'
            )
            for each in definitions
            if not _is_ours(each)
        },
        "access": _file(each for each in cluster if each["kind"] not in _ELSEWHERE),
        "job-gates": _file(
            (each for each in cluster if each["kind"] == JOBS.kind), _since(PROBE_MINOR)
        ),
        "page": _file((each for each in page if each not in services), _helper("page")),
        "page-service": _file(services, f"and ({_helper('page')}) ({_IN_CLUSTER})"),
        "cert-manager": _file(
            (_fill(each, each, _GUARD) for each in read_directory(_CERT_MANAGER)),
            _helper("certManager"),
        ),
        "rotation": _file(guarding.filled(lambda each: each.rotation), _helper("rotates")),
        "reclaim-plan": _file(plan, _helper("plansReclaim")),
        "reclaim": _file(act, _helper("reclaims")),
        "node-fit": _file(guarding.filled(lambda each: each.node_fit), _helper("judgesNodes")),
        "configuration": _file(configuration),
        "identities": _file(one for one in identities if not _is_of_devices(one)),
        "device-claims": _file(
            filter(_is_of_devices, identities),
            f"and ({_since(DEVICE_CLASS_MINOR)}) ({_SERVES_DEVICE_CLASSES})",
        ),
        "client-auth": _file([authority], f"and ({_CLIENTS_SHOWN}) ({_IN_CLUSTER})"),
        "workloads": _file(map(_workload, workloads), _IN_CLUSTER),
        "network-policy": _file(
            map(_network_policy, network), f"and .Values.networkPolicy.enabled ({_IN_CLUSTER})"
        ),
        "api-priority": _file(
            (_fill(each, each, _GUARD) for each in read_directory(_API_PRIORITY)),
            "(.Values.apiPriority | default dict).enabled",
        ),
        "alerts": _file([rule], ".Values.monitoring.enabled"),
        "service-monitor": _file([monitor], f"and .Values.monitoring.enabled ({_IN_CLUSTER})"),
        "stamps": _file(guarding.filled(lambda each: each.stamps), ".Values.stamps"),
        "registrations": _file(map(_registration, guarding.filled(lambda each: each.entries))),
        "creation": _file([_gating_all(gate_binding), gate_policy], _BY_POLICY),
        "creation-auto": _file([auto_binding, auto_policy], f"and ({_BY_POLICY}) ({_SOME_GATES})"),
        "must-specify": _file(
            must_specify, f"and ({_BY_POLICY}) ({_helper('mustSpecifyAtCreation')})"
        ),
        "mask": _file(hiding.filled(lambda each: each.masks), _mask_is("policy")),
    }


def shipped_deployments() -> dict[str, Tree]:
    """Return the Deployments of the manifests, by their component."""
    objects = read_directory(MANIFESTS / "base/workloads")
    return {_component(each): each for each in objects if each["kind"] == "Deployment"}


def shipped_peers() -> dict[str, list[Tree]]:
    """Return the peers that the network policies of the manifests name, by policy."""
    policies: list[Tree] = list(read_directory(_NETWORK_POLICY))
    return {_policy(each): each["spec"]["ingress"][0].get("from", []) for each in policies}


# -- inside --------------------------------------------------------------------------------


def _file(objects: Iterable[Tree], condition: str = "") -> str:
    """Return the text of a template; with a condition, nothing is there where it is false."""
    text = emit_documents(list(objects))
    head = "{{- /* Written by scripts/chart from manifests/; do not edit. */ -}}\n"
    return f"{head}{{{{- if {condition} }}}}\n{text}{{{{- end }}}}\n" if condition else head + text


@dataclass(frozen=True, slots=True)
class _Marked:
    """Installations with marks in their places, which differ in one setting."""

    always: Rendered
    never: Rendered
    """The same without gating."""
    kind: _Kind

    @classmethod
    def of(cls, mask: Mask, kind: _Kind, by_policies: str = _GATING) -> _Marked:
        """Render them with a form of the mask, and a gating for policies."""
        always, never = (
            _marked(mask, gating, by_policies) for gating in (ALWAYS_GATING, NEVER_GATING)
        )
        return cls(always, never, kind)

    def filled(self, part: Callable[[Rendered], Sequence[Object]]) -> list[Tree]:
        """Return a part of the objects with actions for marks."""
        both = zip(part(self.always), part(self.never), strict=True)
        return [_fill(always, never, self.kind) for always, never in both]


def _marked(mask: Mask, gating: str, by_policies: str) -> Rendered:
    return render(
        mask=mask,
        stamps=True,
        page=PageSettings(enabled=True, port=_PORT),
        reclaim=ReclaimMode.ACT,
        judges_nodes=True,
        clients=KnownClients(_CLIENT_PEM, (_CLIENT,)),
        deferred_resources=[_RESOURCE],
        exempt_namespaces=[_EXEMPT],
        gating=gating,
        creation=CreationRules(
            gating=by_policies, trusted_users=[_TRUSTED], break_glass_groups=[_BREAKS_GLASS]
        ),
        trusted_users=[_TRUSTED],
        break_glass_groups=[_BREAKS_GLASS],
        image=_IMAGE,
    )


def _fill(value: Tree, never: Tree, kind: _Kind) -> Tree:
    """Return a part of an object with actions for marks.

    Args:
        value: The part.
        never: The same part of an installation without gating.
        kind: What the object is for.
    """
    if isinstance(value, dict):
        if value.get("name") == MASK_ENTRY:
            kind = _MASK
        return {key: _field(key, item, never[key], kind) for key, item in value.items()}
    if isinstance(value, list) and _EXEMPT in value:
        return Action(kind.left_out)
    if isinstance(value, list) and len(value) == len(never):
        return [_item(*both, kind) for both in zip(value, never, strict=True)]
    if value != never:
        return _chosen(value, never)
    if value == _PORT:
        return Action(_helper("pagePort"))
    return _text(value, kind) if isinstance(value, str) else value


def _field(key: str, value: Tree, never: Tree, kind: _Kind) -> Tree:
    if key == "variables":
        return [_variable(*both, kind) for both in zip(value, never, strict=True)]
    if key == "clientConfig":
        return Block(f'include "deferred-quota.client" (list . "{value["service"]["path"]}")')
    return _fill(value, never, kind)


def _variable(value: Tree, never: Tree, kind: _Kind) -> Tree:
    """Return a variable of a policy; one of them is computed from several fields."""
    if value["name"] == GATES_ALL:
        return {**value, "expression": Action(f"{_helper('gatesAll')} | toJson")}
    return _fill(value, never, kind)


def _item(value: Tree, never: Tree, kind: _Kind) -> Tree:
    item = _fill(value, never, kind)
    if isinstance(value, dict) and value.get("name") == MASK_ENTRY:
        return When(_mask_is("webhook"), item)
    return item


def _registration(configuration: Tree) -> Tree:
    """Return a webhook configuration with the entries of both forms of what decides about pods.

    It says whose CA cert-manager writes into it, where that is to be.
    """
    entries = [form for each in configuration["webhooks"] for form in _forms(each)]
    metadata = configuration["metadata"]
    notes = {**metadata["annotations"], INJECTED_ANNOTATIONS[0]: Given(_helper("injectedFrom"))}
    return {**configuration, "metadata": {**metadata, "annotations": notes}, "webhooks": entries}


def _forms(entry: Tree) -> list[Tree]:
    """Return an entry, or what there is of it where the webhook decides and where policies do."""
    if isinstance(entry, When) or entry["name"] not in {GATE_ENTRY, SHAPE_ENTRY, UNGATED_ENTRY}:
        return [entry]
    narrowed = [
        When(f"and (not ({_ENTRIES_DECIDE})) ({condition})", each)
        for condition, rules in _NARROWED.get(entry["name"], {}).items()
        for each in narrowed_entries([entry], rules)
    ]
    return [When(_ENTRIES_DECIDE, entry), *narrowed]


def _by_gating(value: Tree, auto: Tree) -> Tree:
    """Return a part of an object that differs where the gating is `auto`."""
    if isinstance(value, dict):
        return {key: _by_gating(item, auto[key]) for key, item in value.items()}
    if isinstance(value, list) and len(value) == len(auto):
        return [_by_gating(*both) for both in zip(value, auto, strict=True)]
    if value == auto:
        return value
    return Action(f"ternary `{json.dumps(auto)}` `{json.dumps(value)}` ({_IS_AUTO})")


def _gating_all(binding: Tree) -> Tree:
    """Return a binding that spares namespaces by their gating only where another gates there."""
    selected = binding["spec"]["matchResources"]
    *terms, gating = selected["namespaceSelector"]["matchExpressions"]
    selector = {"matchExpressions": [*terms, When(_SOME_GATES, gating)]}
    resources = {**selected, "namespaceSelector": selector}
    return {**binding, "spec": {**binding["spec"], "matchResources": resources}}


def _mask_is(mask: str) -> str:
    return f'eq ({_helper("mask")}) "{mask}"'


def _chosen(value: Tree, never: Tree) -> Action:
    """Return a scalar or a list of them that depends on the gating."""
    return Action(f"ternary `{json.dumps(never)}` `{json.dumps(value)}` ({_NEVER})")


def _text(value: str, kind: _Kind) -> Tree:
    """Return text with actions for the marks in it."""
    if value == _CONFIGURATION:
        return Block(_helper("configuration"), is_text=True)
    if value == _CLIENT_PEM:
        return Block(_CLIENTS_SHOWN, is_text=True)
    whole = _MARKS.fullmatch(value)
    if whole is not None:
        return Action(f"{kind.expression(whole[0], whole['listed'])} | toJson")
    made, end = "", 0
    for found in _MARKS.finditer(value):
        action = f"{{{{ {kind.expression(found[0], found['listed'])} }}}}"
        made += escaped(value[end : found.start()]) + action
        end = found.end()
    return Text(made + escaped(value[end:])) if end else value


def _kept(definition: Tree) -> Tree:
    """Return a definition that an uninstallation leaves: with it, all objects of its kind go."""
    metadata = definition["metadata"]
    annotations = {**metadata.get("annotations", {}), "helm.sh/resource-policy": "keep"}
    return {**definition, "metadata": {**metadata, "annotations": annotations}}


def _is_of_devices(policy: Tree) -> bool:
    return bool(policy["metadata"]["name"] == DEVICE_CLAIMS_POLICY)


def _is_ours(definition: Tree) -> bool:
    """Return whether a definition is of our own group; another program may have brought others."""
    return bool(definition["spec"]["group"] == QUOTA_LEDGERS.group)


def _workload(obj: Tree) -> Tree:
    """Return an object with the values that only the chart has."""
    component = _component(obj)
    if obj["kind"] == "ResourceQuota":
        hard = {**obj["spec"]["hard"], "pods": Action(f"{_helper('roomForPods')} | quote")}
        return {**obj, "spec": {**obj["spec"], "hard": hard}}
    if obj["kind"] != "Deployment":
        return obj
    spec = obj["spec"]
    pod = spec["template"]["spec"]
    resources = Block(f"toYaml .Values.{component}.resources")
    containers = [_container({**each, "resources": resources}) for each in pod["containers"]]
    given = {field: Given(f".Values.{field}") for field in POD_FIELDS}
    volumes = [_volume(each) for each in pod["volumes"]]
    pod = {**pod, **given, "containers": containers, "volumes": volumes}
    template = {**spec["template"], "spec": pod}
    replicas = Action(f".Values.{component}.replicas | int")
    return {**obj, "spec": {**spec, "replicas": replicas, "template": template}}


def _container(container: Tree) -> Tree:
    """Return a container that names the clients of the values, where there are some."""
    return {
        **container,
        "args": [_argument(each) for each in container["args"]],
        "volumeMounts": [_volume(each) for each in container["volumeMounts"]],
    }


def _argument(argument: Tree) -> Tree:
    if argument.endswith(f"={_CLIENT}"):
        text = f"printf `{argument.removesuffix(_CLIENT)}%s` . | toJson"
        return Each(f"{_CLIENT_AUTH}.names", Action(text))
    return When(_CLIENTS_SHOWN, argument) if argument.startswith("--client-ca=") else argument


def _volume(volume: Tree) -> Tree:
    """Return a volume, or the mount of one; one is there only where clients are named."""
    return When(_CLIENTS_SHOWN, volume) if volume["name"] == _CLIENT_VOLUME else volume


def _network_policy(policy: Tree) -> Tree:
    """Return a policy with the peers that the values name; none of them stands for all."""
    peers = Action(f"toJson .Values.networkPolicy.{_policy(policy)}From")
    (rule,) = policy["spec"]["ingress"]
    return {**policy, "spec": {**policy["spec"], "ingress": [{**rule, "from": peers}]}}


def _monitoring(obj: Tree) -> Tree:
    """Return an object of the Prometheus operator with the labels and addresses of the values."""
    metadata = {**obj["metadata"], "labels": Block(_helper("monitoringLabels"))}
    if obj["kind"] == "ServiceMonitor":
        (endpoint,) = obj["spec"]["endpoints"]
        endpoint = {**endpoint, "interval": Action(".Values.monitoring.interval")}
        return {**obj, "metadata": metadata, "spec": {**obj["spec"], "endpoints": [endpoint]}}
    return {**_with_runbooks(obj), "metadata": metadata}


def _with_runbooks(value: Tree) -> Tree:
    """Return a part of an object in which the place of the runbooks is that of the values."""
    if isinstance(value, dict):
        return {
            key: Action(f"printf `%s{item}` .Values.monitoring.runbooks | toJson")
            if key == _RUNBOOK
            else _with_runbooks(item)
            for key, item in value.items()
        }
    return [_with_runbooks(item) for item in value] if isinstance(value, list) else value


def _policy(policy: Tree) -> str:
    return str(policy["metadata"]["name"]).removeprefix("deferred-quota-")


def _component(obj: Tree) -> str:
    return str(obj["metadata"]["labels"]["app.kubernetes.io/component"])
