"""The configuration file: what it may say, and what is said about a wrong one."""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.config import (
    BindNodeFit,
    CertificateSettings,
    Configuration,
    ConfigurationError,
    Coverage,
    ElasticLabelOrder,
    ElasticSettings,
    Extender,
    Gating,
    JobFeatureGates,
    JobRuleSettings,
    JobVerdict,
    Limits,
    MirrorPods,
    MustSpecify,
    NodeFit,
    PageSettings,
    Queue,
    QueueOrder,
    QuotaUpdate,
    ReclaimMode,
    ReclaimSettings,
    TerminatingPods,
    Timeouts,
    load_configuration,
)
from webhook.quota.charging.limited_resources import LimitedResource
from webhook.quota.charging.scope_validation import read_legal_expressions
from webhook.quota.jobs import ALL_GATES, JobGate

HEAD = "apiVersion: deferredquota.io/v1alpha1\nkind: Configuration\n"
FULL = """
deferredResources: [requests.nvidia.com/gpu, requests.example.com/fpga]
mustSpecify: bind
mirrorPods: enforce
terminatingPods: Hold
limitedResources:
- resource: pods
  matchContains: [cpu]
  matchScopes:
  - {scopeName: PriorityClass, operator: In, values: [gold]}
- {apiGroup: apps, resource: deployments}
requireQuotaForPriority:
- {scopeName: PriorityClass, operator: Exists}
coverage: platform
quotaUpdate: scopes
gating: never
breakGlassGroups: [sre]
trustedUsers: [quota-bot]
exemptNamespaces: [kube-system, platform]
queue: {order: BestEffortFIFO, maxOvertakes: 7, maxWaitSeconds: 30}
timeouts: {ledgerSeconds: 2, expireReservationSeconds: 60, gateReleaseSeconds: 90}
limits: {bodyBytes: 3145728, threads: 4, reservationsPerNamespace: 1000, reasonsPerSecond: 5,
         labelsPerSecond: 9, logAllowedEvery: 50}
extender: {enabled: true}
nodeFit: Deny
page: {enabled: true, port: 9090}
certificates: {rotate: false}
elastic:
  enabled: false
  gpuMemoryGB: 80
  labelOrder: Priority
  headroom: false
  reclaim: {mode: Act, afterSeconds: 6, protectOwnSeconds: 7, nodeFit: Off,
            maxEvictionsPerMinute: 8, coolDownSeconds: 9, maxGraceSeconds: 61}
jobGates:
  MutablePodResourcesForSuspendedJobs: false
  MutableSchedulingDirectivesForSuspendedJobs: false
jobs:
- {claims: Allow}
"""


def load(body: str) -> Configuration:
    return load_configuration(HEAD + body, "config.yaml")


def error_of(text: str) -> ConfigurationError:
    with pytest.raises(ConfigurationError) as caught:
        load_configuration(text, "config.yaml")
    return caught.value


def leaves(value: object, path: str = "") -> dict[str, object]:
    if not is_dataclass(value):
        return {path: value}
    found: dict[str, object] = {}
    for field in fields(value):
        found |= leaves(getattr(value, field.name), f"{path}.{field.name}")
    return found


def test_a_file_without_settings_means_the_defaults() -> None:
    assert load("") == Configuration()


def test_the_defaults_are_those_of_the_documentation() -> None:
    assert Configuration() == Configuration(
        deferred_resources=(),
        must_specify=MustSpecify.CREATE,
        mirror_pods=MirrorPods.CHARGE,
        terminating_pods=TerminatingPods.RELEASE,
        limited_resources=(),
        require_quota_for_priority=(),
        coverage=Coverage.PRODUCT,
        quota_update=QuotaUpdate.ALLOW,
        gating=Gating.AUTO,
        break_glass_groups=frozenset({"system:masters"}),
        trusted_users=frozenset(),
        exempt_namespaces=frozenset({"kube-system", "kube-public", "kube-node-lease"}),
        queue=Queue(order=QueueOrder.STRICT, max_overtakes=100, max_wait_seconds=300),
        timeouts=Timeouts(ledger_seconds=3, expire_reservation_seconds=45, gate_release_seconds=60),
        limits=Limits(
            body_bytes=7_340_032,
            threads=64,
            reservations_per_namespace=4000,
            reasons_per_second=20,
            labels_per_second=50,
            log_allowed_every=1,
        ),
        extender=Extender(enabled=False),
        page=PageSettings(enabled=False, port=8081),
        certificates=CertificateSettings(rotate=True),
        elastic=ElasticSettings(
            enabled=True,
            gpu_memory_gb=32,
            label_order=ElasticLabelOrder.CREATION_TIME,
            headroom=True,
        ),
        job_gates=JobFeatureGates(mutable_pod_resources=None, mutable_scheduling_directives=None),
        jobs=(),
    )


def test_every_setting_can_be_set() -> None:
    assert load(FULL) == Configuration(
        deferred_resources=("requests.nvidia.com/gpu", "requests.example.com/fpga"),
        must_specify=MustSpecify.BIND,
        mirror_pods=MirrorPods.ENFORCE,
        terminating_pods=TerminatingPods.HOLD,
        limited_resources=(
            {
                "resource": "pods",
                "matchContains": ("cpu",),
                "matchScopes": (
                    {"scopeName": "PriorityClass", "operator": "In", "values": ("gold",)},
                ),
            },
            {"apiGroup": "apps", "resource": "deployments"},
        ),
        require_quota_for_priority=({"scopeName": "PriorityClass", "operator": "Exists"},),
        coverage=Coverage.PLATFORM,
        quota_update=QuotaUpdate.SCOPES,
        gating=Gating.NEVER,
        break_glass_groups=frozenset({"sre"}),
        trusted_users=frozenset({"quota-bot"}),
        exempt_namespaces=frozenset({"kube-system", "platform"}),
        queue=Queue(order=QueueOrder.BEST_EFFORT, max_overtakes=7, max_wait_seconds=30),
        timeouts=Timeouts(ledger_seconds=2, expire_reservation_seconds=60, gate_release_seconds=90),
        limits=Limits(
            body_bytes=3_145_728,
            threads=4,
            reservations_per_namespace=1000,
            reasons_per_second=5,
            labels_per_second=9,
            log_allowed_every=50,
        ),
        extender=Extender(enabled=True),
        node_fit=BindNodeFit.DENY,
        page=PageSettings(enabled=True, port=9090),
        certificates=CertificateSettings(rotate=False),
        elastic=ElasticSettings(
            enabled=False,
            gpu_memory_gb=80,
            label_order=ElasticLabelOrder.PRIORITY,
            headroom=False,
            reclaim=ReclaimSettings(
                mode=ReclaimMode.ACT,
                after_seconds=6,
                protect_own_seconds=7,
                node_fit=NodeFit.OFF,
                max_evictions_per_minute=8,
                cool_down_seconds=9,
                max_grace_seconds=61,
            ),
        ),
        job_gates=JobFeatureGates(mutable_pod_resources=False, mutable_scheduling_directives=False),
        jobs=(JobRuleSettings(claims=JobVerdict.ALLOW),),
    )


def test_the_file_that_sets_everything_leaves_no_default_behind() -> None:
    defaults, loaded = leaves(Configuration()), leaves(load(FULL))
    assert [path for path in defaults if defaults[path] == loaded[path]] == []


def test_a_null_field_means_its_default() -> None:
    body = "mustSpecify: null\ntimeouts:\nlimits: {threads: ~}\nexemptNamespaces: null\n"
    assert load(body) == Configuration()


def test_a_section_keeps_the_defaults_of_what_it_leaves_out() -> None:
    assert load("timeouts: {ledgerSeconds: 9}").timeouts == replace(Timeouts(), ledger_seconds=9)


def test_json_is_read_too() -> None:
    text = '{"apiVersion":"deferredquota.io/v1alpha1","kind":"Configuration","mustSpecify":"off"}'
    assert load_configuration(text, "c.json").must_specify is MustSpecify.OFF


@pytest.mark.parametrize("word", ["off", "'off'", '"off"'])
def test_off_is_a_word_however_it_is_quoted(word: str) -> None:
    assert load(f"mustSpecify: {word}").must_specify is MustSpecify.OFF


WRONG_FIELDS = {
    "unknown field": ("quotaUpdat: reject", "quotaUpdat", "unknown field"),
    "misspelled field": (
        "mustSpecfy: bind",
        "mustSpecfy",
        "unknown field, did you mean 'mustSpecify'?",
    ),
    "unknown field of a section": ("limits: {thread: 1}", "limits.thread", "unknown field, did"),
    "unknown field in a list": (
        "limitedResources: [{resource: pods, scopes: []}]",
        "limitedResources[0].scopes",
        "unknown field",
    ),
    "unknown field in an expression": (
        "limitedResources: [{resource: pods}, {resource: pods, matchScopes: [{op: In}]}]",
        "limitedResources[1].matchScopes[0].op",
        "unknown field",
    ),
    "unknown gate": ("jobGates: {JobGate: true}", "jobGates.JobGate", "unknown field"),
    "merge key": ("<<: {mustSpecify: bind}", "<<", "unknown field"),
    "missing resource": (
        "limitedResources: [{matchContains: [cpu]}]",
        "limitedResources[0].resource",
        "must be given",
    ),
    "missing operator": (
        "requireQuotaForPriority: [{scopeName: PriorityClass}]",
        "requireQuotaForPriority[0].operator",
        "must be given",
    ),
    "resource that is null": (
        "limitedResources: [{resource: pods}, {resource: ~}]",
        "limitedResources[1].resource",
        "must be given",
    ),
    "coverage by another word": (
        "coverage: matching",
        "coverage",
        "must be one of product, platform, not 'matching'",
    ),
    "coverage of another case": ("coverage: Platform", "coverage", "must be one of product, plat"),
    "quota updates by another word": (
        "quotaUpdate: deny",
        "quotaUpdate",
        "must be one of allow, scopes, reject, not 'deny'",
    ),
    "quota updates as a switch": (
        "quotaUpdate: false",
        "quotaUpdate",
        "must be a string, not a boolean",
    ),
    "substrings that are a text": (
        "limitedResources: [{resource: pods, matchContains: cpu}]",
        "limitedResources[0].matchContains",
        "must be a list, not 'cpu'",
    ),
    "a substring that is null": (
        "limitedResources: [{resource: pods, matchContains: [~]}]",
        "limitedResources[0].matchContains[0]",
        "must be a string, not empty",
    ),
    "empty resource": (
        "limitedResources: [{resource: ''}]",
        "limitedResources[0].resource",
        "must not be empty",
    ),
    "expression value is a number": (
        "requireQuotaForPriority: [{scopeName: P, operator: In, values: [a, 7]}]",
        "requireQuotaForPriority[0].values[1]",
        "must be a string, not a number",
    ),
    "unknown word": (
        "mustSpecify: never",
        "mustSpecify",
        "must be one of create, bind, off, not 'never'",
    ),
    "word is a number": ("mirrorPods: 1", "mirrorPods", "must be a string, not a number"),
    "no such word for terminating pods": (
        "terminatingPods: hold",
        "terminatingPods",
        "must be one of Release, Hold, not 'hold'",
    ),
    "word of another case": ("mirrorPods: Charge", "mirrorPods", "must be one of charge, enforce"),
    "list is a text": (
        "exemptNamespaces: kube-system",
        "exemptNamespaces",
        "must be a list, not 'kube-system'",
    ),
    "list is an object": ("exemptNamespaces: {a: b}", "exemptNamespaces", "must be a list, not an"),
    "null in a list": ("exemptNamespaces: [~]", "exemptNamespaces[0]", "must be a string, not emp"),
    "unknown gating": (
        "gating: gates",
        "gating",
        "must be one of always, auto, never, not 'gates'",
    ),
    "former name, unknown": ("pacing: gates", "pacing", "is gating now: always, auto or never"),
    "both names": (
        "pacing: gate\ngating: always",
        "pacing",
        "is the former name of gating: remove it",
    ),
    "unknown order": (
        "queue: {order: FIFO}",
        "queue.order",
        "must be one of StrictFIFO, BestEffortFIFO, not 'FIFO'",
    ),
    "no patience at all": (
        "timeouts: {gateReleaseSeconds: 0}",
        "timeouts.gateReleaseSeconds",
        "must be",
    ),
    "a negative wait": ("queue: {maxWaitSeconds: -1}", "queue.maxWaitSeconds", "must be"),
    "one group": ("breakGlassGroups: sre", "breakGlassGroups", "must be a list, not 'sre'"),
    "empty user": ("trustedUsers: ['']", "trustedUsers[0]", "must not be empty"),
    "empty namespace": ("exemptNamespaces: ['']", "exemptNamespaces[0]", "must not be empty"),
    "no name of a namespace": (
        "exemptNamespaces: [team-a, X_]",
        "exemptNamespaces[1]",
        "must be the name of a namespace, not 'X_'",
    ),
    "section is a list": ("timeouts: []", "timeouts", "must be an object, not a list"),
    "number is a boolean": (
        "limits: {threads: true}",
        "limits.threads",
        "must be a whole number, not a boolean",
    ),
    "number has a fraction": (
        "timeouts: {ledgerSeconds: 1.5}",
        "timeouts.ledgerSeconds",
        "must be a whole number, not '1.5'",
    ),
    "number in words": ("limits: {threads: '8'}", "limits.threads", "must be a whole number"),
    "number written in octal": ("limits: {threads: 010}", "limits.threads", "must be a whole numb"),
    "number of any size": (
        "limits: {threads: " + "9" * 5000 + "}",
        "limits.threads",
        "must be a whole number, not '999",
    ),
    "too few threads": ("limits: {threads: 0}", "limits.threads", "must be from 1 to 64, not 0"),
    "expiry within the life of a request": (
        "timeouts: {expireReservationSeconds: 34}",
        "timeouts.expireReservationSeconds",
        "must be from 35 to 3600, not 34",
    ),
    "ledger that cannot be stored": (
        "limits: {reservationsPerNamespace: 4001}",
        "limits.reservationsPerNamespace",
        "must be from 1 to 4000, not 4001",
    ),
    "boolean is a word": (
        "jobGates: {MutablePodResourcesForSuspendedJobs: yes}",
        "jobGates.MutablePodResourcesForSuspendedJobs",
        "must be true, false or Auto, not 'yes'",
    ),
    "deferred resource without prefix": (
        "deferredResources: [nvidia.com/gpu]",
        "deferredResources[0]",
        "must be 'requests.' and an extended resource",
    ),
    "deferred resource that the platform owns": (
        "deferredResources: [requests.nvidia.com/gpu, requests.storage]",
        "deferredResources[1]",
        "must be 'requests.' and an extended resource",
    ),
    "deferred resource that is a device class": (
        "deferredResources: [requests.deviceclass.resource.kubernetes.io/fast]",
        "deferredResources[0]",
        "must be 'requests.' and an extended resource",
    ),
    "deferred resource that is a number": (
        "deferredResources: [7]",
        "deferredResources[0]",
        "must be a string, not a number",
    ),
}


@pytest.mark.parametrize(
    ("body", "field", "detail"), WRONG_FIELDS.values(), ids=WRONG_FIELDS.keys()
)
def test_a_wrong_field_is_named_with_its_path(body: str, field: str, detail: str) -> None:
    error = error_of(HEAD + body)
    assert error.field == field
    assert error.detail.startswith(detail)
    assert str(error) == f"config.yaml: {field}: {error.detail}"


WRONG_TEXTS = {
    "empty": ("", "must be an object, not empty"),
    "a list": ("[]", "must be an object, not a list"),
    "no YAML": ("a: b: c", "line 1, column 5: mapping values are not allowed here"),
    "two documents": (f"{HEAD}---\n{HEAD}", "line 3, column 1: but found another document"),
    "a field twice": (f"{HEAD}kind: Configuration", "line 3, column 1: field 'kind' appears twice"),
    "a nested field twice": (f"{HEAD}limits: {{a: 1, a: 2}}", "line 3, column 16: field 'a' app"),
    "a key that is a number": (f"{HEAD}1: a", "line 3, column 1: a field name must be a string"),
    "a key that is a list": (f"{HEAD}? [a]\n: b", "line 3, column 3: a field name must be a str"),
    "an unknown tag": (f"{HEAD}limits: !!python/name:os.system x", "line 3, column 9: could not"),
    "a float": (f"{HEAD}limits: !!float 1", "line 3, column 9: could not determine a constructor"),
    "a tag that lies": (f"{HEAD}limits: !!int x", "line 3, column 9: 'x' is not of type int"),
    "an object tag that lies": (f"{HEAD}limits: !!map x", "line 3, column 9: an object is needed"),
    "a control character": ("a: \x01", "unacceptable character #x0001"),
    "deep nesting": ("[" * 100_000, "nests too deep"),
    "a knot": (f"{HEAD}limits: &a {{b: *a}}", "line 3, column 9: found unconstructable recursive"),
}


@pytest.mark.parametrize(("text", "detail"), WRONG_TEXTS.values(), ids=WRONG_TEXTS.keys())
def test_a_text_that_is_no_configuration_is_refused_with_the_place(text: str, detail: str) -> None:
    error = error_of(text)
    assert error.field == ""
    assert error.detail.startswith(detail)


WRONG_HEADS = {
    "no apiVersion": ("kind: Configuration", "apiVersion", "must be given"),
    "no kind": ("apiVersion: deferredquota.io/v1alpha1", "kind", "must be given"),
    "other version": (
        "{apiVersion: deferredquota.io/v2, kind: Configuration}",
        "apiVersion",
        "must be 'deferredquota.io/v1alpha1', not 'deferredquota.io/v2'",
    ),
    "other kind": (
        "{apiVersion: deferredquota.io/v1alpha1, kind: ConfigMap}",
        "kind",
        "must be 'Configuration', not 'ConfigMap'",
    ),
}


@pytest.mark.parametrize(("text", "field", "detail"), WRONG_HEADS.values(), ids=WRONG_HEADS.keys())
def test_a_file_has_to_say_what_it_is(text: str, field: str, detail: str) -> None:
    error = error_of(text)
    assert (error.field, error.detail) == (field, detail)


def test_the_callers_check_can_refuse_and_names_the_file() -> None:
    def check(configuration: Configuration) -> None:
        raise ValueError(f"mirrorPods: {configuration.mirror_pods} is not possible here")

    with pytest.raises(ConfigurationError, match=r"^c\.yaml: mirrorPods: charge is not possible"):
        load_configuration(HEAD, "c.yaml", check=check)


_NAMES = st.sampled_from(
    ["apiVersion", "kind", "limits", "threads", "timeouts", "limitedResources", "resource", "<<"]
)
_PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=3),
    max_leaves=8,
)


@given(body=st.dictionaries(_NAMES, _PLAIN, max_size=4))
def test_no_value_anywhere_is_more_than_a_configuration_error(body: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError):
        load_configuration(json.dumps({"kind": "Configuration", **body}), "c.json")


@given(text=st.text(alphabet=st.sampled_from("ab:-[]{},&*!|>?'\"# \n\t0~<%@")))
def test_no_text_is_more_than_a_configuration_error(text: str) -> None:
    with pytest.raises(ConfigurationError):
        load_configuration(text, "c.yaml")


def check_with_the_core(configuration: Configuration) -> None:
    """Judge as the running webhook does: with the core's own readers."""
    for index, entry in enumerate(configuration.limited_resources):
        LimitedResource.from_object(entry, field=f"limitedResources[{index}]", strict=True)
    read_legal_expressions(configuration.require_quota_for_priority, "requireQuotaForPriority")


CORE_CASES = {
    "operator in the wrong case": (
        "limitedResources: [{resource: a, matchScopes: [{scopeName: BestEffort, operator: in}]}]",
        "limitedResources[0].matchScopes[0].operator: ",
    ),
    "illegal value": (
        "requireQuotaForPriority: [{scopeName: PriorityClass, operator: In, values: ['a b']}]",
        "requireQuotaForPriority[0].values[0]: ",
    ),
    "operator that the scope does not take": (
        "requireQuotaForPriority: [{scopeName: Terminating, operator: DoesNotExist}]",
        "requireQuotaForPriority[0].operator: must be 'Exists' when scope is any of ",
    ),
    "no values": (
        "requireQuotaForPriority: [{scopeName: PriorityClass, operator: In}]",
        "requireQuotaForPriority[0].values: must be at least one value when ",
    ),
    "values where none can be": (
        "requireQuotaForPriority: [{scopeName: PriorityClass, operator: Exists, values: [a]}]",
        "requireQuotaForPriority[0].values: must be no value when ",
    ),
    "illegal value in the second entry": (
        """limitedResources:
- resource: configmaps
- resource: pods
  matchScopes: [{scopeName: PriorityClass, operator: NotIn, values: [gold, -x]}]
""",
        "limitedResources[1].matchScopes[0].values[1]: must be a valid label value",
    ),
    "unknown scope": (
        "requireQuotaForPriority: [{scopeName: Priority, operator: Exists}]",
        "requireQuotaForPriority[0].scopeName: ",
    ),
}


@pytest.mark.parametrize(("body", "start"), CORE_CASES.values(), ids=CORE_CASES.keys())
def test_what_only_the_core_can_judge_is_named_with_its_path(body: str, start: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_configuration(HEAD + body, "c.yaml", check=check_with_the_core)
    assert str(caught.value).startswith(f"c.yaml: {start}")


def test_the_core_reads_the_plain_values_that_are_left_to_it() -> None:
    assert load_configuration(HEAD + FULL, "c.yaml", check=check_with_the_core) == load(FULL)


def test_the_job_gates_are_those_of_the_core() -> None:
    body = "".join(f"  {gate}: false\n" for gate in JobGate)
    assert load(f"jobGates:\n{body}").job_gates.enabled == frozenset()
    assert Configuration().job_gates.enabled == ALL_GATES
    for gate in JobGate:
        assert load(f"jobGates: {{{gate}: false}}").job_gates.enabled == ALL_GATES - {gate}
