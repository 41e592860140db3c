"""`deferred-quota convert`: quotas of AAQ, of OpenShift and of the scheduler's plugins."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import a_quota
from tests.kube.layouts import layout_of
from webhook.cli import ExitCode, cli
from webhook.kube.files.documents import read_documents
from webhook.quota.objects.names import DEFERRED_KEYS
from webhook.quota.shared.cluster_quota_validation import cluster_quota_errors

AAQ = "aaq.kubevirt.io/v1alpha1"
OPENSHIFT = "quota.openshift.io/v1"
PLUGINS = "scheduling.x-k8s.io/v1alpha1"
SCOPED = {"scopes": ["NotTerminating"]}


def theirs(api_version: str, kind: str, spec: object, **metadata: object) -> dict[str, object]:
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": "q", "uid": "u", "resourceVersion": "7", **metadata},
        "spec": spec,
        "status": {"hard": {}},
    }


def convert(*objects: object) -> Result:
    stdin = yaml.safe_dump_all(objects)
    return CliRunner().invoke(cli, ["convert", "-f", "-"], input=stdin)


def converted(*objects: object) -> list[Any]:
    done = convert(*objects)
    assert done.exit_code == ExitCode.OK, done.output
    return list(yaml.safe_load_all(done.stdout))


def values_of(text: str) -> list[object]:
    return [document.value for document in read_documents("stdout", text.encode())]


def test_a_quota_of_aaq_is_a_resource_quota_of_its_name() -> None:
    hard = {"requests.cpu": "4", "pods": "9"}
    raw = theirs(AAQ, "ApplicationAwareResourceQuota", {"hard": hard, **SCOPED}, namespace="a")
    (quota,) = converted(raw)
    assert quota == {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "q", "namespace": "a"},
        "spec": {"hard": hard, **SCOPED},
    }


@pytest.mark.parametrize(
    ("api_version", "kind"),
    [(AAQ, "ApplicationAwareClusterResourceQuota"), (OPENSHIFT, "ClusterResourceQuota")],
)
def test_a_cluster_wide_quota_is_a_cluster_deferred_quota(api_version: str, kind: str) -> None:
    labels = {"matchLabels": {"team": "web"}}
    quota = {"hard": {"requests.cpu": "20", "secrets": "5"}, **SCOPED}
    raw = theirs(api_version, kind, {"selector": {"labels": labels}, "quota": quota})
    done = convert(raw)
    (found,) = list(yaml.safe_load_all(done.stdout))
    assert (found["kind"], found["metadata"]) == ("ClusterDeferredQuota", {"name": "q"})
    assert found["spec"] == {"namespaceSelector": labels, "hard": {"requests.cpu": "20"}, **SCOPED}
    assert not cluster_quota_errors(found, DEFERRED_KEYS)
    assert "spec.quota.hard.secrets: is left out: limit it by a ResourceQuota" in done.stderr


def test_resources_of_virtual_machines_are_left_out_with_a_note() -> None:
    hard = {"requests.cpu/vmi": "4", "requests.cpu": "8"}
    done = convert(theirs(AAQ, "ApplicationAwareResourceQuota", {"hard": hard}))
    (quota,) = list(yaml.safe_load_all(done.stdout))
    assert quota["spec"]["hard"] == {"requests.cpu": "8"}
    assert "spec.hard[requests.cpu/vmi]: is left out: virtual machines are charged" in done.stderr


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (
            {"selector": {"annotations": {"a": "b"}}, "quota": {"hard": {"requests.cpu": "1"}}},
            "spec.selector.annotations: has no counterpart: select namespaces by labels",
        ),
        ({"quota": {"hard": {"requests.cpu": "1"}}}, "spec.selector.labels: must be given"),
        (
            {"selector": {"labels": {}}, "quota": {"hard": {"pods": "1"}}},
            "spec.quota.hard: has no deferred resource",
        ),
        (
            {"selector": {"labels": {}}, "quota": {"hard": {"requests.cpu": "-1"}}},
            "spec.quota.hard[requests.cpu]: must be greater than or equal to 0",
        ),
        (
            {"selector": 7, "quota": {"hard": {"requests.cpu": "1"}}},
            "spec.selector: must be an object",
        ),
    ],
)
def test_what_cannot_be_converted_is_an_error(spec: object, words: str) -> None:
    done = convert(theirs(AAQ, "ApplicationAwareClusterResourceQuota", spec))
    assert done.exit_code == ExitCode.BAD_INPUT
    assert done.stdout == ""
    assert words in done.stderr


def test_all_that_is_to_be_done_by_hand_is_named_at_once() -> None:
    hard = {"requests.cpu": "-1", "requests.memory": "much", "pods": "1"}
    annotated = {"selector": {"annotations": {"a": "b"}}, "quota": {"hard": {"requests.cpu": "1"}}}
    done = convert(
        theirs(AAQ, "ApplicationAwareResourceQuota", {"hard": {"requests.cpu/vmi": "2"}}),
        theirs(AAQ, "ApplicationAwareResourceQuota", {"hard": hard}),
        theirs(AAQ, "ApplicationAwareClusterResourceQuota", annotated),
        {**a_quota(), "spec": {"priorityClassNameList": ["a b", ""], "hard": {"configmaps": "1"}}},
    )
    assert (done.exit_code, done.stdout) == (ExitCode.BAD_INPUT, "")
    lines = [line.split(": ") for line in done.stderr.splitlines()]
    assert [(label, place.partition(",")[0], field) for label, _, place, field, *_ in lines] == [
        ("warning", "document 1", "spec.hard[requests.cpu/vmi]"),
        ("Error", "document 2", "spec.hard[requests.cpu]"),
        ("Error", "document 2", "spec.hard[requests.memory]"),
        ("Error", "document 3", "spec.selector.annotations"),
        ("Error", "document 3", "spec.selector.labels"),
        ("Error", "document 4", "spec.priorityClassNameList[0]"),
        ("Error", "document 4", "spec.priorityClassNameList[1]"),
        ("Error", "document 4", "spec.hard.configmaps"),
    ]


def test_items_of_a_list_are_converted_and_others_stay() -> None:
    mine = theirs(AAQ, "ApplicationAwareResourceQuota", {"hard": {"cpu": "1"}}, namespace="a")
    other = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}
    (listed,) = converted({"apiVersion": "v1", "kind": "List", "items": [mine, other]})
    assert [one["kind"] for one in listed["items"]] == ["ResourceQuota", "ConfigMap"]
    assert listed["items"][1] == other


def test_an_elastic_quota_of_the_schedulers_plugins_is_one_of_ours() -> None:
    spec = {
        "min": {"cpu": "4", "memory": "8Gi", "nvidia.com/gpu": 2},
        "max": {"cpu": "6", "memory": "9Gi"},
    }
    done = convert(theirs(PLUGINS, "ElasticQuota", spec, namespace="a"))
    (quota,) = list(yaml.safe_load_all(done.stdout))
    assert quota == {
        "apiVersion": "nos.nebuly.com/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": "q", "namespace": "a"},
        "spec": spec,
    }
    assert done.stderr == ""


def test_what_means_another_thing_in_an_elastic_quota_is_noted() -> None:
    spec = {"min": {"nvidia.com/gpu": 2, "ephemeral-storage": "1Gi"}, "max": {"cpu": "1"}}
    done = convert(theirs(PLUGINS, "ElasticQuota", spec, namespace="a"))
    assert done.exit_code == ExitCode.OK
    for words in (
        "spec.min.ephemeral-storage: no bind is charged for it: limit it by a ResourceQuota",
        "spec.max.memory: was 0, as it is not set; is now unlimited: set it to keep the limit",
    ):
        assert words in done.stderr
    done = convert(theirs(PLUGINS, "ElasticQuota", {"min": {"memory": "1Gi"}}, namespace="a"))
    assert "spec.min.cpu: was 0, as it is not set; is now not compared" in done.stderr


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"min": {"cpu": "2"}, "max": {"cpu": "1"}}, "spec.min[cpu]: must be less than or equal"),
        ({"min": {"cpu": "x"}}, "spec.min.cpu: 'x' is not a quantity"),
        ({"min": []}, "spec.min: must be an object"),
    ],
)
def test_an_elastic_quota_that_is_wrong_is_an_error(spec: object, words: str) -> None:
    done = convert(theirs(PLUGINS, "ElasticQuota", spec, namespace="a"))
    assert (done.exit_code, done.stdout) == (ExitCode.BAD_INPUT, "")
    assert words in done.stderr


BOTH_SCOPED = {"hard": {"requests.cpu": "20", "secrets": 5, "pods": 2}, **SCOPED}
MACHINES = {"requests.cpu": 1, "limits.memory/vmi": "1Gi"}
SELECTED = {"labels": {"matchLabels": {"team": "web"}}, "annotations": {}}
EXISTS = {"scopeName": "PriorityClass", "operator": "Exists"}
QUOTAS = (
    (AAQ, "ApplicationAwareResourceQuota", {"hard": MACHINES, **SCOPED}),
    (AAQ, "ApplicationAwareResourceQuota", {"hard": {"requests.cpu/vmi": "1"}}),
    (AAQ, "ApplicationAwareClusterResourceQuota", {"selector": SELECTED, "quota": BOTH_SCOPED}),
    (OPENSHIFT, "ClusterResourceQuota", {"quota": BOTH_SCOPED, "selector": {"labels": {}}}),
    (PLUGINS, "ElasticQuota", {"min": {"cpu": "1"}, "max": {"cpu": 2}}),
    ("v1", "ResourceQuota", {"priorityClassNameList": ["gold", "silver"], "hard": {"pods": 1}}),
    ("v1", "ResourceQuota", {"hard": {"pods": "1"}, "PriorityClassNameList": ["gold", "gold"]}),
    ("v1", "ResourceQuota", {"hard": {}, "priorityClassNameList": ["*", "gold"]}),
    (
        "v1",
        "ResourceQuota",
        {"priorityClassNameList": ["gold"], "scopeSelector": {"matchExpressions": [EXISTS]}},
    ),
    ("v1", "ConfigMap", {"text": "one\n two\n"}),
)


def a_document(random: Random, depth: int = 2) -> dict[str, object]:
    """A quota or another object, perhaps in a list, its members in any order."""
    if depth and random.randrange(2):
        items = [a_document(random, depth - 1) for _ in range(random.randrange(1, 4))]
        return {"apiVersion": "v1", "kind": "List", "items": items}
    api_version, kind, spec = random.choice(QUOTAS)
    return shuffled(theirs(api_version, kind, spec, namespace="a", labels={"a": "b"}), random)


def shuffled(value: dict[str, object], random: Random) -> dict[str, object]:
    return {
        name: shuffled(item, random) if isinstance(item, dict) else item
        for name, item in random.sample(list(value.items()), len(value))
    }


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32))
def test_text_and_objects_are_converted_alike_with_each_comment_once(seed: int) -> None:
    random = Random(seed)  # noqa: S311 - a test
    layout = layout_of(a_document(random), random)
    done = CliRunner().invoke(cli, ["convert", "-f", "-"], input=layout.text)
    as_json = CliRunner().invoke(cli, ["convert", "-f", "-", "-o", "json"], input=layout.text)
    assert (done.exit_code, as_json.exit_code) == (ExitCode.OK, ExitCode.OK)
    assert values_of(done.stdout) == values_of(as_json.stdout)
    assert layout.comments_in(done.stdout) == layout.comments
    again = CliRunner().invoke(cli, ["convert", "-f", "-"], input=done.stdout)
    assert again.stdout == done.stdout
