"""LimitRanges, classes, rollouts, template paths and object counts, one by one."""

from __future__ import annotations

from typing import Final

import pytest

from tests.builders import Object, a_container
from tests.quota.checking.subjects import a_balance, a_pod_spec, a_subject, a_workload, an_object
from webhook.jsonfields.fields import InvalidFieldError
from webhook.quota.amounts.resources import to_text
from webhook.quota.charging.pod_usage import usage_of
from webhook.quota.checking.classes import ClassTable, PriorityClass, RuntimeClass
from webhook.quota.checking.limit_ranges import LimitRange
from webhook.quota.checking.object_usage import object_usage
from webhook.quota.checking.rollouts import Rollout, surge_of
from webhook.quota.checking.template_paths import (
    TemplatePath,
    TemplatePathError,
    pods_by_path,
    template_places,
)
from webhook.quota.checking.values import Rule, Terms
from webhook.quota.jobs.policy import JobRule
from webhook.quota.jobs.policy import Verdict as JobVerdict


def a_range(*limits: Object) -> Terms:
    raw = {"metadata": {"name": "limits"}, "spec": {"limits": list(limits)}}
    return Terms(limit_ranges=(LimitRange.from_object(raw),))


def of_containers(**fields: object) -> Terms:
    return a_range({"type": "Container", **fields})


def test_a_limit_range_adds_what_containers_do_not_say() -> None:
    terms = of_containers(
        default={"cpu": "2", "memory": "1Gi"}, defaultRequest={"cpu": "100m"}, min={"memory": "1Mi"}
    )
    raw = an_object(
        "Pod", "a", {"containers": [a_container(), a_container("b", limits={"cpu": 1})]}
    )
    (group,) = a_subject(raw, terms).groups
    first, second = group.pod.containers
    assert to_text(first.requests) == {"cpu": "100m", "memory": "1Gi"}
    assert to_text(first.limits) == {"cpu": "2", "memory": "1Gi"}
    assert to_text(second.requests) == {"cpu": "1", "memory": "1Gi"}
    assert str(usage_of(group.pod, now=None)["limits.cpu"]) == "3"


REFUSED = {
    "above the largest limit": (
        of_containers(max={"cpu": "1"}),
        {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}},
        "maximum cpu usage per Container is 1, but limit is 2",
    ),
    "below the smallest request": (
        of_containers(min={"cpu": "100m"}),
        {"requests": {"cpu": "50m"}},
        "minimum cpu usage per Container is 100m, but request is 50m",
    ),
    "a ratio too large": (
        of_containers(maxLimitRequestRatio={"cpu": "2"}),
        {"requests": {"cpu": "1"}, "limits": {"cpu": "2500m"}},
        "cpu max limit to request ratio per Container is 2, but provided ratio is 2.500000",
    ),
    "a ratio without a limit": (
        of_containers(maxLimitRequestRatio={"cpu": "2"}),
        {"requests": {"cpu": "1"}},
        (
            "cpu max limit to request ratio per Container is 2,"
            " but no limit is specified or limit is 0"
        ),
    ),
    "the pod is too large": (
        a_range({"type": "Pod", "max": {"cpu": "1"}}),
        {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}},
        "maximum cpu usage per Pod is 1, but limit is 2",
    ),
    "the pod does not say": (
        a_range({"type": "Pod", "min": {"memory": "1Mi"}}),
        {"requests": {"cpu": "1"}},
        "minimum memory usage per Pod is 1Mi.  No request is specified",
    ),
    "two at once": (
        of_containers(max={"cpu": "1", "memory": "1Mi"}),
        {"limits": {"cpu": "2", "memory": "2Mi"}},
        (
            "[maximum cpu usage per Container is 1, but limit is 2,"
            " maximum memory usage per Container is 1Mi, but limit is 2Mi]"
        ),
    ),
}


@pytest.mark.parametrize(("terms", "resources", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_a_limit_range_refuses(terms: Terms, resources: Object, words: str) -> None:
    raw = an_object("Pod", "a", {"containers": [a_container(**resources)]})  # type: ignore[arg-type]
    subject = a_subject(raw, terms)
    assert [one.rule for one in subject.issues] == [Rule.LIMIT_RANGE]
    assert subject.issues[0].text == f'pods "a" is forbidden: {words}'


def test_equal_to_the_limits_is_within_them() -> None:
    terms = of_containers(max={"cpu": "1"}, min={"cpu": "1"}, maxLimitRequestRatio={"cpu": "1"})
    raw = an_object("Pod", "a", {"containers": [a_container(limits={"cpu": "1000m"})]})
    assert a_subject(raw, terms).issues == ()


def test_a_claim_has_to_be_within_a_limit_range() -> None:
    terms = a_range({"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}})
    raw = an_object(
        "PersistentVolumeClaim", "data", {"resources": {"requests": {"storage": "2Gi"}}}
    )
    (issue,) = a_subject(raw, terms).refusals
    assert issue.text == (
        'persistentvolumeclaims "data" is forbidden: maximum storage usage per'
        " PersistentVolumeClaim is 1Gi, but request is 2Gi"
    )


HIGH = PriorityClass("high", 1000)
DEFAULT = PriorityClass("usual", 7, is_default=True)


def classes(*priorities: PriorityClass, runtimes: tuple[RuntimeClass, ...] = ()) -> Terms:
    table = ClassTable(
        {one.name: one for one in priorities},
        {one.name: one for one in runtimes},
        has_all_priorities=True,
        has_all_runtimes=True,
    )
    return Terms(classes=table)


def test_a_pod_gets_the_priority_of_its_class_or_the_default() -> None:
    for name, expected in (
        ("high", ("high", 1000)),
        ("", ("usual", 7)),
        ("system-node-critical", ("system-node-critical", 2_000_001_000)),
    ):
        raw = an_object("Pod", "a", a_pod_spec(priorityClassName=name))
        (group,) = a_subject(raw, classes(HIGH, DEFAULT)).groups
        assert (group.pod.priority_class_name, group.pod.priority) == expected


def test_a_class_has_to_exist_where_all_are_known() -> None:
    raw = an_object("Pod", "a", a_pod_spec(priorityClassName="low"))
    (issue,) = a_subject(raw, classes(HIGH)).issues
    assert (issue.rule, issue.text) == (
        Rule.PRIORITY_CLASS,
        'pods "a" is forbidden: no PriorityClass with name low was found',
    )
    assert a_subject(raw, Terms()).issues == ()


def test_a_priority_of_its_own_is_refused() -> None:
    raw = an_object("Pod", "a", a_pod_spec(priorityClassName="high", priority=5))
    (issue,) = a_subject(raw, classes(HIGH)).issues
    assert "the integer value of priority (5) must not be provided in pod spec" in issue.text


def a_runtime() -> RuntimeClass:
    return RuntimeClass.from_object(
        {
            "metadata": {"name": "kata"},
            "overhead": {"podFixed": {"cpu": "250m"}},
            "scheduling": {"nodeSelector": {"kata": "yes"}},
        }
    )


def test_a_runtime_class_adds_its_overhead() -> None:
    raw = an_object("Pod", "a", a_pod_spec(runtimeClassName="kata"))
    (group,) = a_subject(raw, classes(runtimes=(a_runtime(),))).groups
    assert str(usage_of(group.pod, now=None)["requests.cpu"]) == "1250m"
    assert group.raw["spec"]["nodeSelector"] == {"kata": "yes"}  # type: ignore[index]


RUNTIME_FAULTS = {
    "unknown": ({"runtimeClassName": "gvisor"}, 'pod rejected: RuntimeClass "gvisor" not found'),
    "other overhead": (
        {"runtimeClassName": "kata", "overhead": {"cpu": "1"}},
        "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead",
    ),
    "overhead without class": (
        {"overhead": {"cpu": "1"}},
        "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead",
    ),
    "another node": (
        {"runtimeClassName": "kata", "nodeSelector": {"kata": "no"}},
        (
            "conflict: runtimeClass.scheduling.nodeSelector[kata] = yes;"
            " pod.spec.nodeSelector[kata] = no"
        ),
    ),
}


@pytest.mark.parametrize(("fields", "words"), RUNTIME_FAULTS.values(), ids=RUNTIME_FAULTS.keys())
def test_a_runtime_class_refuses(fields: Object, words: str) -> None:
    raw = an_object("Pod", "a", {**a_pod_spec(), **fields})
    (issue,) = a_subject(raw, classes(runtimes=(a_runtime(),))).issues
    assert (issue.rule, issue.text) == (Rule.RUNTIME_CLASS, f'pods "a" is forbidden: {words}')


def rolling(**fields: object) -> Object:
    return {"rollingUpdate": fields}


SURGES: dict[str, tuple[str, Object, int, tuple[int, bool]]] = {
    "a quarter, rounded up": ("Deployment", {}, 5, (2, False)),
    "one of one, none away": ("Deployment", {}, 1, (1, True)),
    "three of three, a quarter is none": ("Deployment", {}, 3, (1, True)),
    "a number": ("Deployment", {"strategy": rolling(maxSurge=3, maxUnavailable=0)}, 5, (3, True)),
    "percentages": (
        "Deployment",
        {"strategy": rolling(maxSurge="50%", maxUnavailable="10%")},
        10,
        (5, False),
    ),
    "recreated": ("Deployment", {"strategy": {"type": "Recreate"}}, 5, (0, False)),
    "no surge": ("Deployment", {"strategy": rolling(maxSurge=0)}, 5, (0, False)),
    "an ordinary daemon": ("DaemonSet", {}, 5, (0, False)),
    "a daemon beside itself": (
        "DaemonSet",
        {"updateStrategy": rolling(maxSurge="20%", maxUnavailable=0)},
        6,
        (2, True),
    ),
    "a daemon by hand": ("DaemonSet", {"updateStrategy": {"type": "OnDelete"}}, 6, (0, False)),
    "in turn": ("StatefulSet", {}, 6, (0, False)),
    "a run beside the last": ("CronJob", {}, 2, (2, False)),
    "no run beside the last": ("CronJob", {"concurrencyPolicy": "Forbid"}, 2, (0, False)),
}


@pytest.mark.parametrize(("kind", "spec", "count", "expected"), SURGES.values(), ids=SURGES.keys())
def test_the_pods_of_a_rollout(
    kind: str, spec: Object, count: int, expected: tuple[int, bool]
) -> None:
    raw: Object = {"kind": kind, "spec": spec}
    found = surge_of(raw, count, Rollout.SURGE)
    assert (found.count, found.is_needed) == expected
    assert surge_of(raw, count, Rollout.STEADY).count == 0


@pytest.mark.parametrize("wrong", ["a lot", "-5%", -1, True, {}])
def test_a_surge_is_a_number_or_a_percentage(wrong: object) -> None:
    raw: Object = {"kind": "Deployment", "spec": {"strategy": rolling(maxSurge=wrong)}}
    with pytest.raises(InvalidFieldError) as caught:
        surge_of(raw, 3, Rollout.SURGE)
    assert caught.value.field == "spec.strategy.rollingUpdate.maxSurge"


def test_templates_are_found_by_path() -> None:
    path = TemplatePath.parse("RayCluster.ray.io=spec.workerGroupSpecs[*].template:replicas")
    template: Object = {"spec": a_pod_spec()}
    raw: Object = {
        "kind": "RayCluster",
        "metadata": {"name": "ray"},
        "spec": {
            "workerGroupSpecs": [{"replicas": 3, "template": template}, {"template": template}]
        },
    }
    found = pods_by_path(raw, [path], field="items[0]")
    assert [(one.count, one.field) for one in found] == [
        (3, "items[0].spec.workerGroupSpecs[0].template"),
        (1, "items[0].spec.workerGroupSpecs[1].template"),
    ]
    assert path.is_about("ray.io", "RayCluster")
    assert not path.is_about("other.io", "RayCluster")


def test_a_path_that_leads_nowhere_is_named() -> None:
    path = TemplatePath.parse("Thing=spec.worker.template")
    with pytest.raises(InvalidFieldError) as caught:
        pods_by_path({"kind": "Thing", "spec": {}}, [path])
    assert caught.value.field == "spec.worker"


def test_places_that_look_like_templates_are_found() -> None:
    template = {"spec": {"containers": [{"name": "main", "image": "app"}]}}
    groups = [{"replicas": 2, "template": template}, {"replicas": 1, "template": template}]
    raw = {
        "spec": {
            "head": {"template": template},
            "workers": groups,
            "other": {"spec": {"containers": "none"}},
            "a.b": {"template": template},
        }
    }
    assert template_places(raw) == ("spec.head.template", "spec.workers[*].template:replicas", "")
    assert template_places({"kind": "Other", "spec": {"containers": []}}) == ()


A_TEMPLATE: Final = {"spec": {"containers": [{"name": "main", "image": "app"}]}}
WITHOUT_A_PATH: Final[dict[str, Object]] = {
    "a colon": {"a:b": A_TEMPLATE},
    "a bracket": {"a[*]": A_TEMPLATE},
    "a dot": {"a.b": A_TEMPLATE},
    "no name": {"": A_TEMPLATE},
    "a line break": {"a\nb": A_TEMPLATE},
    "some items only": {"groups": [{"template": A_TEMPLATE}, {}]},
    "some items are none": {"groups": [A_TEMPLATE, None]},
    "a number of pods below zero": {"replicas": -1, "template": A_TEMPLATE},
}


@pytest.mark.parametrize("spec", WITHOUT_A_PATH.values(), ids=WITHOUT_A_PATH.keys())
def test_no_path_is_offered_that_does_not_lead_to_the_templates(spec: Object) -> None:
    assert template_places({"spec": spec}) == ("",)


def test_offered_paths_read_the_object_that_they_are_offered_for() -> None:
    counted, uncounted = {"replicas": 2, "template": A_TEMPLATE}, {"template": A_TEMPLATE}
    raw = {
        "spec": {
            "h'; touch x; '": A_TEMPLATE,
            "some": [uncounted, counted],
            "flag": {"replicas": True, "template": A_TEMPLATE},
        }
    }
    places = template_places(raw)
    assert places == ("spec.h'; touch x; '", "spec.some[*].template:replicas", "spec.flag.template")
    paths = [TemplatePath.parse(f"Thing.example.com={place}") for place in places]
    assert [one.count for one in pods_by_path(raw, paths)] == [1, 1, 2, 1]


@pytest.mark.parametrize("text", ["", "Thing", "Thing=", "=spec", "Thing=spec..x", "Thing=a:b..c"])
def test_a_path_has_its_form(text: str) -> None:
    with pytest.raises(TemplatePathError):
        TemplatePath.parse(text)


def service(**spec: object) -> dict[str, str]:
    return to_text(object_usage(an_object("Service", "a", spec), "services"))


def test_services_are_charged_for_ports_and_balancers() -> None:
    ports = [{"port": 1}, {"port": 2, "nodePort": 30000}]
    assert service(ports=ports)["services.nodeports"] == "0"
    assert service(type="NodePort", ports=ports)["services.nodeports"] == "2"
    balanced = service(type="LoadBalancer", ports=ports)
    assert (balanced["services.nodeports"], balanced["services.loadbalancers"]) == ("2", "1")
    explicit = service(type="LoadBalancer", ports=ports, allocateLoadBalancerNodePorts=False)
    assert explicit["services.nodeports"] == "1"


def test_claims_are_charged_by_storage_class_too() -> None:
    spec = {"storageClassName": "gold", "resources": {"requests": {"storage": "2Gi"}}}
    raw = an_object("PersistentVolumeClaim", "a", spec)
    assert to_text(object_usage(raw, "persistentvolumeclaims")) == {
        "count/persistentvolumeclaims": "1",
        "gold.storageclass.storage.k8s.io/persistentvolumeclaims": "1",
        "gold.storageclass.storage.k8s.io/requests.storage": "2Gi",
        "persistentvolumeclaims": "1",
        "requests.storage": "2Gi",
    }


def test_a_stateful_set_makes_claims() -> None:
    claim = {"spec": {"resources": {"requests": {"storage": "1Gi"}}}}
    raw = a_workload("StatefulSet", replicas=3, volumeClaimTemplates=[claim])
    subject = a_subject(raw)
    assert str(subject.made["requests.storage"]) == "3Gi"
    assert str(subject.made["persistentvolumeclaims"]) == "3"


def test_what_is_suspended_makes_no_pods() -> None:
    (group,) = a_subject(a_workload("Job", suspend=True)).groups
    assert group.count == 0


def test_a_request_above_its_limit_is_invalid_in_the_template_or_with_the_defaults() -> None:
    raw = a_workload(cpu="2")
    template = raw["spec"]["template"]["spec"]  # type: ignore[index]
    words = "must be less than or equal to cpu limit of 1"
    (issue,) = a_subject(raw, of_containers(max={"cpu": "1"})).issues
    assert issue.rule is Rule.INVALID
    assert issue.text == (
        f'Pod "web-" is invalid: spec.containers[0].resources.requests: Invalid value: "2": {words}'
    )
    template["containers"][0]["resources"]["limits"] = {"cpu": "1"}
    (refusal,) = a_subject(raw).refusals
    assert refusal.text == (
        'Deployment.apps "web" is invalid: spec.template.spec.containers[0].resources.requests:'
        f' Invalid value: "2": {words}'
    )


FAULTS_OF_PODS: dict[str, tuple[Object, str]] = {
    "a toleration": (
        {"tolerations": [{"operator": "Equal"}]},
        "spec.tolerations[0].operator: Invalid value",
    ),
    "a gate": ({"schedulingGates": [{"name": "a"}] * 2}, "spec.schedulingGates[1]: Duplicate"),
    "a node selector": ({"nodeSelector": {"a b": ""}}, "spec.nodeSelector: Invalid value"),
}


@pytest.mark.parametrize(("fields", "words"), FAULTS_OF_PODS.values(), ids=FAULTS_OF_PODS.keys())
def test_what_is_said_to_the_scheduler_has_to_make_sense(fields: Object, words: str) -> None:
    (refusal,) = a_subject(an_object("Pod", "a", {**a_pod_spec(), **fields})).refusals
    assert refusal.rule is Rule.INVALID
    assert words in refusal.text


def test_tolerations_that_compare_are_left_to_the_cluster() -> None:
    tolerations = [{"key": "a", "operator": "Gt", "value": "5"}]
    pod = an_object("Pod", "a", {**a_pod_spec(), "tolerations": tolerations})
    assert a_subject(pod).refusals == ()


def test_other_resources_need_a_limit() -> None:
    raw = an_object("Pod", "a", {"containers": [a_container(requests={"example.com/gpu": "1"})]})
    (refusal,) = a_subject(raw).refusals
    assert "Limit must be set for non overcommitable resources" in refusal.text


def test_a_rule_of_the_cluster_refuses_a_job_that_cannot_run_all_its_pods() -> None:
    quota = a_balance(requests_cpu="2").quota
    job = a_workload("Job", parallelism=3, completions=3)
    words = "spec.parallelism: 3 pods ask requests.cpu=3, quota team limits requests.cpu=2;"
    for verdict, rules in ((JobVerdict.DENY, [Rule.JOB_RULE]), (JobVerdict.WARN, [])):
        terms = Terms(quotas=(quota,), jobs=(JobRule(unsuspend=verdict),))
        refusals = a_subject(job, terms).refusals
        assert [one.rule for one in refusals] == rules
        assert all(one.text.startswith(words) for one in refusals)
    strict = Terms(quotas=(quota,), jobs=(JobRule(unsuspend=JobVerdict.DENY),))
    assert a_subject(a_workload("Job", parallelism=3, suspend=True), strict).refusals == ()
    assert a_subject(job, strict, status={}).refusals == ()


LABEL = "a lowercase RFC 1123 label must consist of"
NAMES = {
    "of a Deployment": (
        "Deployment",
        "web_1",
        [{"name": "a"}],
        'Deployment.apps "web_1" is invalid',
    ),
    "of a Pod": ("Pod", "A", [{"name": "a"}], 'metadata.name: Invalid value: "A": a lowercase RFC'),
    "of a CronJob": ("CronJob", "a" * 53, [{"name": "a"}], "must be no more than 52 characters"),
    "too long": ("Pod", "a" * 254, [{"name": "a"}], "must be no more than 253 characters"),
    "of a container": ("Pod", "a", [{"name": "a_b"}], f'name: Invalid value: "a_b": {LABEL}'),
    "no name of a container": ("Pod", "a", [{"image": "x"}], "containers[0].name: Required value"),
    "two of a name": (
        "Deployment",
        "a",
        [{"name": "a"}, {"name": "a"}],
        'spec.template.spec.containers[1].name: Duplicate value: "a"',
    ),
}


@pytest.mark.parametrize(("kind", "name", "containers", "words"), NAMES.values(), ids=NAMES.keys())
def test_names_are_those_of_the_api_server(
    kind: str, name: str, containers: list[Object], words: str
) -> None:
    pod: Object = {"containers": containers}
    specs: dict[str, Object] = {
        "Pod": pod,
        "Deployment": {"template": {"spec": pod}},
        "CronJob": {"jobTemplate": {"spec": {"template": {"spec": pod}}}},
    }
    (refusal,) = a_subject(an_object(kind, name, specs[kind])).refusals
    assert refusal.rule is Rule.INVALID
    assert words in refusal.text
