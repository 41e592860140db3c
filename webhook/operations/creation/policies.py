"""Admission policies for new pods, made from the rules of the configuration.

A MutatingAdmissionPolicy gates pods without a node in namespaces whose gating is `always`. It knows
no quota: what may take anything is gated, and the controller takes the gate off what no quota
concerns. A second one, for namespaces whose gating is `auto`, gates what is larger than the
namespace's PodGating says. That is its parameter, which the controller writes by what the quotas
have left; where there is none nothing is gated. Two ValidatingAdmissionPolicies, one with the
ResourceQuotas of the pod's namespace as parameters and one with the ClusterDeferredQuotas, refuse
pods that do not name what a quota limits.

A policy is evaluated once for each parameter, and one refusal is enough. That a pod needs *some*
quota is therefore no rule for a policy: where the configuration has such rules, an entry of the
webhook stays, for those pods that the rules are about. Where the bind may refuse pods whatever they
take, a namespace whose gating is `auto` keeps the entry that gates.

Policies and entries do the same twice without harm, so that there is a time with both when one
takes the other's place.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from webhook.config import Configuration, MustSpecify
from webhook.kube.api import CLUSTER_DEFERRED_QUOTAS, POD_GATINGS, Object
from webhook.kube.kinds import NAMESPACE_NAME_LABEL
from webhook.operations.creation.cel import (
    CONTAINERS,
    HAS_MANY_TERMS,
    HAS_NO_NODE,
    MANY_ITEMS,
    SCOPE_VARIABLES,
    STATES_POD_LEVEL,
    any_of,
    cel_list,
    cel_text,
    cel_truth,
    matches_any,
    selects_pod,
)
from webhook.operations.names import (
    GATE_ENTRY,
    GLASS_BREAKERS,
    SHAPE_ENTRY,
    TRUSTED,
    UNGATED_ENTRY,
)
from webhook.policy import Policy, compile_policy
from webhook.quota.charging.constraints import KEYS_OF_LIMITS, KEYS_OF_REQUESTS
from webhook.quota.charging.deferral import EXCLUDE_ANNOTATION
from webhook.quota.objects.names import DERIVED_PREFIXES, SHARED_PREFIX
from webhook.state.well_known import (
    ALWAYS_GATING,
    AUTO_GATING,
    CAPACITY_LABEL,
    DEFERRED_MODE,
    ELASTIC_LABEL,
    FORMER_GATING_LABEL,
    FORMER_GATING_MODES,
    GATING_LABEL,
    GUARDED_ANNOTATION,
    MANAGED_PREFIX,
    MODE_LABEL,
    NEVER_GATING,
    POD_GATING,
    SCHEDULING_GATE,
    UNEVALUATED_LABEL,
    UNGATED_ANNOTATION,
    gating_of,
)

GATE_POLICY: Final = "deferred-quota-gate"
AUTO_GATE_POLICY: Final = "deferred-quota-gate-auto"
MUST_SPECIFY_POLICY: Final = "deferred-quota-must-specify"
SHARED_MUST_SPECIFY_POLICY: Final = "deferred-quota-must-specify-shared"
MUST_SPECIFY_POLICIES: Final = (MUST_SPECIFY_POLICY, SHARED_MUST_SPECIFY_POLICY)
COMPONENT: Final = "creation"
"""Label of these objects by which they are told from others of an installation."""

GATING: Final = "gating"
GATES_ALL: Final = "gatesAll"
"""Variables of the gate's policy, beside the lists of users: what the configuration says."""

_API_VERSION: Final = "admissionregistration.k8s.io/v1"
_LABELS: Final = {
    "app.kubernetes.io/name": "deferred-quota",
    "app.kubernetes.io/part-of": "deferred-quota",
    "app.kubernetes.io/component": COMPONENT,
}
_SHIPPED: Final = ("kube-system", "kube-public", "kube-node-lease")
_MANY_CONTAINERS: Final = 128
"""Containers are looked at again for each quota. A pod of more of them is gated where it is not
refused, and says why it waits."""
_ALL: Final[Mapping[str, object]] = MappingProxyType({})
_NEEDS_A_QUOTA: Final = "may-need-a-quota"


@dataclass(frozen=True, slots=True, kw_only=True)
class CreationRules:
    """Rules of the configuration for new pods."""

    gating: str = Configuration().gating
    """`always`, `auto` or `never`, for namespaces that do not say it by a label."""
    policy: Policy = field(default_factory=Policy)
    trusted_users: Collection[str] = ()
    break_glass_groups: Collection[str] = Configuration().break_glass_groups
    left_out: Collection[str] = ()
    """Namespaces that the selectors leave out by name."""

    @classmethod
    def of(cls, configuration: Configuration) -> CreationRules:
        """Return the rules of a configuration.

        Raises:
            InvalidFieldError: One of its rules cannot be evaluated.
        """
        return cls(
            gating=configuration.gating,
            policy=compile_policy(configuration),
            trusted_users=configuration.trusted_users,
            break_glass_groups=configuration.break_glass_groups,
        )

    @property
    def needs_quotas(self) -> bool:
        """Whether some pods may only be created where some quota covers them."""
        return bool(self.policy.limited_resources or self.policy.priority_coverage)

    @property
    def gates_all(self) -> bool:
        """Whether the bind may refuse also a pod that takes nothing."""
        return self.needs_quotas or self.policy.must_specify is MustSpecify.BIND


def left_out(namespace: str, exempt: Collection[str]) -> list[str]:
    """Return the namespaces that selectors leave out by name.

    Args:
        namespace: That of the installation.
        exempt: Those that the configuration exempts.
    """
    shipped = [*_SHIPPED, namespace]
    return [*shipped, *sorted(set(exempt) - set(shipped))]


def creation_objects(rules: CreationRules) -> tuple[Object, ...]:
    """Return the policies, each behind its binding, so that none ever stands without."""
    made = [_gate_binding(rules), _gate_policy(rules)]
    if not rules.gates_all:
        made += [_auto_gate_binding(rules), _auto_gate_policy(rules)]
    if rules.policy.must_specify is MustSpecify.CREATE:
        made += [
            *_must_specify(
                MUST_SPECIFY_POLICY,
                {"apiVersion": "v1", "kind": "ResourceQuota"},
                rules,
                is_concerned=f"params.metadata.?annotations[?'{EXCLUDE_ANNOTATION}'].orValue('')"
                " != 'true'",
                name="params.metadata.name",
            ),
            *_must_specify(
                SHARED_MUST_SPECIFY_POLICY,
                {
                    "apiVersion": CLUSTER_DEFERRED_QUOTAS.api_version,
                    "kind": CLUSTER_DEFERRED_QUOTAS.kind,
                },
                rules,
                is_concerned=_SHARES,
                # the API server copies a pod for each parameter, before it asks any condition
                selector={"matchExpressions": [{"key": ELASTIC_LABEL, "operator": "DoesNotExist"}]},
                name=f"'{SHARED_PREFIX}' + params.metadata.name",
            ),
        ]
    return tuple(made)


def without_gating(
    namespaces: Mapping[str, Mapping[str, str]], gating: str, stored: Collection[str]
) -> list[str]:
    """Return the namespaces that are gated by need, and of which no policy knows how.

    Args:
        namespaces: Name of an opted-in namespace → its labels.
        gating: What the configuration says.
        stored: Names of the namespaces that have a PodGating.
    """
    return sorted(
        name
        for name, labels in namespaces.items()
        if gating_of(labels, gating) == AUTO_GATING and name not in stored
    )


def narrowed_entries(entries: Iterable[Object], rules: CreationRules) -> list[Object]:
    """Return entries of a webhook configuration without what the policies decide.

    Args:
        entries: As they are where the webhook decides about new pods.
        rules: Those of the policies.
    """
    kept: list[Object] = []
    for entry in entries:
        match entry["name"]:
            case name if name == GATE_ENTRY:
                if rules.gates_all:
                    terms = [*_base_terms(entry), _auto_term(rules.gating)]
                    kept.append(_selecting(entry, terms))
            case name if name == UNGATED_ENTRY:
                if rules.needs_quotas:
                    conditions = [
                        *_list(entry, "matchConditions"),
                        {"name": _NEEDS_A_QUOTA, "expression": _needs_a_quota(rules.policy)},
                    ]
                    asked = {**entry, "matchConditions": conditions}
                    kept.append(_selecting(asked, _base_terms(entry)))
            case name if name != SHAPE_ENTRY:
                kept.append(entry)
    return kept


# -- the gate ------------------------------------------------------------------------------


_WANTS_GATE: Final = f"""\
variables.{GATING} == '{ALWAYS_GATING}'
  ? !(variables.label in ['{AUTO_GATING}', '{NEVER_GATING}'])
    && !(variables.label == '' && variables.formerLabel in {
    cel_list([old for old, new in FORMER_GATING_MODES.items() if new == NEVER_GATING])
})
  : variables.label == '{ALWAYS_GATING}'"""


def _takes_something(containers: str) -> str:
    """Return whether a pod may take something, or is not looked through.

    One that evicts others counts as such: where quotas cannot be counted no pod is bound at all.
    """
    return f"""\
object.spec.?overhead.hasValue() || object.spec.?resources.hasValue()
  || object.spec.?priority.orValue(0) > 0 || object.spec.?schedulingGroup.hasValue()
  || {HAS_MANY_TERMS}
  || object.?status.?qosClass.hasValue() || {containers}.size() > {_MANY_CONTAINERS}
  || {containers}.exists(each, each.?resources.?requests.orValue({{}}).size() > 0
    || each.?resources.?limits.orValue({{}}).size() > 0)"""


_MAY_MARK: Final = f"""\
request.userInfo.username in variables.{TRUSTED}
  || request.userInfo.?groups.orValue([]).exists(group, group in variables.{GLASS_BREAKERS})"""

# The value is made of map literals: a typed `Object.spec.schedulingGates{...}` in a list ends the
# request with a panic of the API server (docs/creation.md).
# Of very many gates ours is looked for where it is added; twice, it is refused as a duplicate.
_IS_GATED: Final = any_of(
    "object.spec.?schedulingGates.orValue([])",
    "gate",
    f"gate.name == '{SCHEDULING_GATE}'",
    of_many=f"items[items.size() - 1].name == '{SCHEDULING_GATE}'",
)
_ADD_GATE: Final = f"""\
!variables.needsGate || {_IS_GATED}
  ? []
  : object.spec.?schedulingGates.orValue([]).size() > 0
  ? [JSONPatch{{op: "add", path: "/spec/schedulingGates/-",
      value: {{"name": "{SCHEDULING_GATE}"}}}}]
  : [JSONPatch{{op: "add", path: "/spec/schedulingGates",
      value: [{{"name": "{SCHEDULING_GATE}"}}]}}]"""
_FORGED_CLASS: Final = """\
object.?status.?qosClass.hasValue()
  ? [JSONPatch{op: "remove", path: "/status/qosClass"}] : []"""

_HAS_CONTROLLER: Final = any_of(
    "object.metadata.?ownerReferences.orValue([])", "owner", "owner.?controller.orValue(false)"
)
_MARKS: Final[Mapping[str, tuple[tuple[str, ...], str]]] = {
    "annotations": ((UNGATED_ANNOTATION, GUARDED_ANNOTATION), "variables.mayMark"),
    "labels": ((UNEVALUATED_LABEL, CAPACITY_LABEL), f"variables.mayMark || {_HAS_CONTROLLER}"),
}
"""Field of the metadata → our keys in it, and whether the user may write them."""
_IS_MARK: Final = f"key.startsWith('{MANAGED_PREFIX}') || key == '{CAPACITY_LABEL}'"


def _marks(field_name: str) -> str:
    """Return the names of those of our labels or annotations that a user wrote on a new pod."""
    known, kept = _MARKS[field_name]
    marks = f"object.metadata.?{field_name}.orValue({{}})"
    return f"""\
!variables.wantsGate || {kept} ? [] :
  {marks}.size() > {MANY_ITEMS} ? {cel_list(known)}.filter(key, key in {marks})
  : {marks}.filter(key, {_IS_MARK})"""


def _bears_marks() -> str:
    """Return whether there may be some."""
    return " || ".join(
        any_of(f"object.metadata.?{name}.orValue({{}})", "key", _IS_MARK, of_many="true")
        for name in _MARKS
    )


def _remove(variable: str) -> str:
    return f"""\
variables.{variable}.map(key,
  JSONPatch{{op: "remove", path: "/metadata/{variable}/" + jsonpatch.escapeKey(key)}})"""


_LABELS_OF_NAMESPACE: Final = "namespaceObject.metadata.?labels"


def _gate_policy(rules: CreationRules) -> Object:
    takes_something = _takes_something("variables.containers")
    return _mutating(
        GATE_POLICY,
        {},
        {
            GATING: cel_text(rules.gating),
            GATES_ALL: cel_truth(rules.gates_all),
            **_users(rules),
            "label": f"{_LABELS_OF_NAMESPACE}[?'{GATING_LABEL}'].orValue('')",
            "formerLabel": f"{_LABELS_OF_NAMESPACE}[?'{FORMER_GATING_LABEL}'].orValue('')",
            "wantsGate": _WANTS_GATE,
            "containers": CONTAINERS,
            "takesSomething": f"variables.{GATES_ALL} || {takes_something}",
            "needsGate": "variables.wantsGate && variables.takesSomething",
        },
    )


def _gate_binding(rules: CreationRules) -> Object:
    terms = [] if rules.gates_all else [_not_auto_term(rules.gating)]
    return _binding(_MUTATING_BINDING, GATE_POLICY, rules, *terms)


_MOST_CONTAINERS: Final = 8
"""Containers of a pod whose amounts are summed in an expression; with more it is gated."""


def _sum(kind: str) -> str:
    """Return what all containers name of a resource together, and the overhead.

    Init containers do not run beside the others, so it is at least what the pod takes.
    """
    amounts = [f"all[?{index}].?resources.?{kind}[?name]" for index in range(_MOST_CONTAINERS)]
    rest = "".join(
        f"\n    .add(quantity({one}.orValue('0')))"
        for one in [*amounts, "object.spec.?overhead[?name]"]
    )
    return f"quantity('0'){rest}"


def _exceeds(kind: str) -> str:
    most = f"params.spec.?{kind}.orValue({{}})"
    return f"""\
{most}.exists(name,
  {_sum(kind)}
    .isGreaterThan(quantity({most}[name])))"""


_MOST_NAMES: Final = 4
"""Resources that requests or limits of a container may name in an ungated pod. With eight
containers that is `COUNTED_NAMES`; a bind of a pod that names more may be refused whatever is left.
"""
_LARGEST: Final = "1e18"
"""An amount above which a pod is gated also where no quota limits the resource: no bind of a pod
with one above `COUNTABLE` is admitted."""
_IS_UNUSUAL: Final = f"""\
all.exists(each, [each.?resources.?requests.orValue({{}}),
    each.?resources.?limits.orValue({{}})].exists(amounts, amounts.size() > {_MOST_NAMES}
    || amounts.exists(name, quantity(amounts[name]).isGreaterThan(quantity('{_LARGEST}')))))"""
_NAMES_EXTENDED: Final = """\
all.exists(each, each.?resources.?requests.orValue({}).exists(name, name.contains('/'))
    || each.?resources.?limits.orValue({}).exists(name, name.contains('/')))"""
_IS_LARGE: Final = f"""\
params.spec.?gatesAll.orValue(false)
  || object.spec.?schedulingGates.orValue([]).size() > 0
  || object.spec.?resources.hasValue()
  || {HAS_MANY_TERMS}
  || [{CONTAINERS}].exists(all, all.size() > {_MOST_CONTAINERS}
  || {_IS_UNUSUAL}
  || params.spec.?gatesExtended.orValue(false) && {_NAMES_EXTENDED}
  || {_exceeds("requests")}
  || {_exceeds("limits")})"""
"""Whether a pod is to be gated by what its namespace's PodGating says.

One with gates of others is: it may sit out the time in which it was told that there is room.
"""


def _auto_gate_policy(rules: CreationRules) -> Object:
    needs_gate = f"({_IS_LARGE}) && ({_takes_something(f'({CONTAINERS})')})"
    policy = _mutating(
        AUTO_GATE_POLICY,
        {
            # without it each pod is copied; with it one that grows later is not looked at again
            "needs-gate-or-has-marks": f"{needs_gate}\n|| object.?status.?qosClass.hasValue()"
            f"\n|| {_bears_marks()}",
        },
        {**_users(rules), "wantsGate": "true", "needsGate": needs_gate},
    )
    parameters = {"apiVersion": POD_GATINGS.api_version, "kind": POD_GATINGS.kind}
    return {**policy, "spec": {**policy["spec"], "paramKind": parameters}}  # type: ignore[dict-item]


def _auto_gate_binding(rules: CreationRules) -> Object:
    binding = _binding(_MUTATING_BINDING, AUTO_GATE_POLICY, rules, _auto_term(rules.gating))
    reference = {"name": POD_GATING, "parameterNotFoundAction": "Allow"}
    return {**binding, "spec": {**binding["spec"], "paramRef": reference}}  # type: ignore[dict-item]


def _users(rules: CreationRules) -> dict[str, str]:
    return {
        TRUSTED: cel_list(sorted(rules.trusted_users)),
        GLASS_BREAKERS: cel_list(sorted(rules.break_glass_groups)),
    }


def _mutating(name: str, conditions: Mapping[str, str], variables: Mapping[str, str]) -> Object:
    """Return a policy that gates pods and takes forged marks away.

    Args:
        name: Its name.
        conditions: Name of a condition → expression, besides that the pod has no node.
        variables: `wantsGate`, `needsGate`, users, and what these are made of.
    """
    more = {
        "mayMark": _MAY_MARK,
        "annotations": _marks("annotations"),
        "labels": _marks("labels"),
    }
    patches = (
        f"({_FORGED_CLASS})",
        _remove("annotations"),
        _remove("labels"),
        f"({_ADD_GATE})",
    )
    return {
        "apiVersion": _API_VERSION,
        "kind": "MutatingAdmissionPolicy",
        "metadata": {"name": name, "labels": dict(_LABELS)},
        "spec": {
            "failurePolicy": "Ignore",  # a pod without the gate is charged at its bind all the same
            "reinvocationPolicy": "IfNeeded",  # other webhooks add containers
            "matchConstraints": _new_pods(),
            "matchConditions": _named({"has-no-node": HAS_NO_NODE, **conditions}),
            "variables": _named({**variables, **more}),
            # one mutation: each costs the API server a copy of the pod, also with nothing to change
            "mutations": [
                {"patchType": "JSONPatch", "jsonPatch": {"expression": " + ".join(patches)}}
            ],
        },
    }


# -- what a container has to name ----------------------------------------------------------

_HAS_FEW_CONTAINERS: Final = (
    "object.spec.containers.size() + object.spec.?initContainers.orValue([]).size()"
    f" <= {_MANY_CONTAINERS}"
)
_NAMES: Final[Mapping[str, str]] = {**KEYS_OF_REQUESTS, **KEYS_OF_LIMITS}
_UNSTATED: Final = """\
variables.containers.exists(each, !(variables.names[key] in (key in variables.ofLimits
    ? each.?resources.?limits.orValue({}) : each.?resources.?requests.orValue({}))))"""
_RESOURCES: Final = "{" + ", ".join(f"'{key}': '{_NAMES[key]}'" for key in sorted(_NAMES)) + "}"
_MISSING: Final = f"""\
{cel_list(sorted(_NAMES))}.filter(key, key in variables.hard
  && {_UNSTATED})"""
_NAMES_UNSTATED: Final = _UNSTATED.replace(".exists(each", ".filter(each", 1)
_SHARES: Final = f"""\
!params.metadata.name.matches('^({"|".join(one.replace(".", "[.]") for one in DERIVED_PREFIXES)})')
  && params.spec.namespaceSelector.?matchLabels.orValue({{}}).all(key,
    variables.labels[?key] == optional.of(
      params.spec.namespaceSelector.?matchLabels.orValue({{}})[key]))
  && params.spec.namespaceSelector.?matchExpressions.orValue([]).all(term,
    term.operator == 'In' ? variables.labels[?term.key].hasValue()
      && variables.labels[?term.key].orValue('') in term.?values.orValue([]) :
    term.operator == 'NotIn' ? !variables.labels[?term.key].hasValue()
      || !(variables.labels[?term.key].orValue('') in term.?values.orValue([])) :
    term.operator == 'Exists' ? variables.labels[?term.key].hasValue()
      : !variables.labels[?term.key].hasValue())"""


def _must_specify(
    policy: str,
    parameters: Object,
    rules: CreationRules,
    *,
    is_concerned: str,
    name: str,
    selector: Mapping[str, object] = _ALL,
) -> tuple[Object, Object]:
    """Return the binding and the policy by which quotas of one kind oblige containers.

    Args:
        policy: Its name.
        parameters: The kind.
        rules: The rules of the configuration.
        is_concerned: Whether the namespace of the pod is concerned by such a quota at all.
        name: The name of the quota in a refusal.
        selector: Which of that kind may oblige any container.
    """
    variables = {
        "containers": CONTAINERS,
        "labels": "namespaceObject.metadata.?labels.orValue({})",
        "hard": "params.spec.?hard.orValue({})",
        "names": _RESOURCES,
        "ofLimits": cel_list(sorted(KEYS_OF_LIMITS)),
        "missing": _MISSING,
        "isConcerned": is_concerned,
        "statesAsAWhole": STATES_POD_LEVEL,
        **SCOPE_VARIABLES,
        "isSelected": selects_pod("params"),
    }
    message = f"""\
'failed quota: ' + {name} + ': must specify ' + variables.missing.map(key,
  key + ' for: ' + {_NAMES_UNSTATED}.map(each, each.name).join(',')).join('; ')"""
    # what tells most quotas apart comes first: each of them is asked about each new pod
    validation = {
        "expression": "!variables.isConcerned || variables.statesAsAWhole"
        " || variables.missing.size() == 0 || !variables.isSelected",
        "messageExpression": message,
        "message": "must specify what a quota limits, in every container",
        "reason": "Forbidden",
    }
    binding = _binding("ValidatingAdmissionPolicyBinding", policy, rules)
    spec = {
        **binding["spec"],  # type: ignore[dict-item]
        "paramRef": {"selector": {**selector}, "parameterNotFoundAction": "Allow"},
        "validationActions": ["Deny"],
    }
    return {**binding, "spec": spec}, {
        "apiVersion": _API_VERSION,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": policy, "labels": dict(_LABELS)},
        "spec": {
            # the bind asks again: a fault here must not stop creations
            "failurePolicy": "Ignore",
            "paramKind": parameters,
            "matchConstraints": _new_pods(),
            "matchConditions": [
                {"name": "has-no-node", "expression": HAS_NO_NODE},
                {"name": "has-few-containers", "expression": _HAS_FEW_CONTAINERS},
            ],
            "variables": _named(variables),
            "validations": [validation],
        },
    }


# -- inside --------------------------------------------------------------------------------


_MUTATING_BINDING: Final = "MutatingAdmissionPolicyBinding"


def _binding(kind: str, policy: str, rules: CreationRules, *terms: Object) -> Object:
    return {
        "apiVersion": _API_VERSION,
        "kind": kind,
        "metadata": {"name": policy, "labels": dict(_LABELS)},
        "spec": {
            "policyName": policy,
            "matchResources": {
                "matchPolicy": "Equivalent",
                "namespaceSelector": {
                    "matchExpressions": [
                        {"key": MODE_LABEL, "operator": "In", "values": [DEFERRED_MODE]},
                        {
                            "key": NAMESPACE_NAME_LABEL,
                            "operator": "NotIn",
                            "values": list(rules.left_out),
                        },
                        *terms,
                    ]
                },
            },
        },
    }


def _new_pods() -> Object:
    return {
        "matchPolicy": "Equivalent",
        "resourceRules": [
            {
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "operations": ["CREATE"],
                "resources": ["pods"],
                "scope": "Namespaced",
            }
        ],
    }


def _named(expressions: Mapping[str, str]) -> list[Object]:
    return [{"name": name, "expression": text} for name, text in expressions.items()]


def _needs_a_quota(policy: Policy) -> str:
    """Return whether rules that want some quota are about the pod.

    Rules about what it takes are: names of resources are not looked through here.
    """
    if any(entry.match_contains for entry in policy.limited_resources):
        return "true"
    scopes = [each for entry in policy.limited_resources for each in entry.match_scopes]
    return matches_any((*scopes, *policy.priority_coverage))


def _auto_term(gating: str) -> Object:
    """Return the requirement on labels of a namespace whose gating is `auto`."""
    if gating == AUTO_GATING:
        others = [ALWAYS_GATING, NEVER_GATING]
        return {"key": GATING_LABEL, "operator": "NotIn", "values": others}
    return {"key": GATING_LABEL, "operator": "In", "values": [AUTO_GATING]}


def _not_auto_term(gating: str) -> Object:
    """Return the requirement on labels of a namespace whose gating is another one."""
    term = _auto_term(gating)
    return {**term, "operator": "In" if term["operator"] == "NotIn" else "NotIn"}


def _base_terms(entry: Object) -> list[Object]:
    """Return what an entry requires of the labels of namespaces, but for the gating."""
    selector = entry["namespaceSelector"]
    terms: list[Object] = selector["matchExpressions"]  # type: ignore[index]
    return [term for term in terms if term["key"] != GATING_LABEL]


def _selecting(entry: Object, terms: list[Object]) -> Object:
    return {**entry, "namespaceSelector": {"matchExpressions": terms}}


def _list(obj: Object, name: str) -> list[Object]:
    found: list[Object] = obj.get(name, [])  # type: ignore[assignment]
    return found
