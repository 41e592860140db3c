"""Generated files of the Helm chart; what Helm makes of them is for `tests/e2e/cluster`."""

from __future__ import annotations

import inspect
import json
import re
from functools import cache
from typing import Any, Final

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.json_schema import schema_errors
from webhook.config import ConfigurationError, load_configuration
from webhook.install import render
from webhook.install.chart import CHART, chart_files
from webhook.install.chart.emitting import Action, Block, Given, Text, When, emit_documents

BY_HAND: Final = {"templates/_helpers.tpl", "templates/NOTES.txt", "templates/refuse.yaml"}
HELPERS: Final = (CHART / "templates/_helpers.tpl").read_text()

TEXTS: Final = st.text(st.characters(codec="latin-1", exclude_categories=["C"]) | st.just("\n"))
SCALARS: Final = TEXTS | st.booleans() | st.integers()
OBJECTS: Final = st.dictionaries(
    TEXTS,
    st.recursive(
        SCALARS,
        lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner),
        max_leaves=12,
    ),
    min_size=1,
)


generated: Final = cache(chart_files)


def files() -> dict[str, str]:
    return {
        str(path.relative_to(CHART)): path.read_text()
        for path in CHART.rglob("*")
        if path.is_file()
    }


def test_the_chart_is_that_of_the_manifests() -> None:
    committed = {name: text for name, text in files().items() if name not in BY_HAND}
    assert committed == generated(), "run scripts/chart"


def test_every_place_of_an_installation_is_one_of_the_chart() -> None:
    # what is added here has to be a mark in `places`, and a set of values in the tests of templates
    assert inspect.signature(render).parameters.keys() == {
        *("namespace", "url", "ca_pem", "mask", "stamps", "page", "rotates", "reclaim"),
        *("judges_nodes", "clients", "deferred_resources"),
        *(
            "exempt_namespaces",
            "gating",
            "creation",
            "trusted_users",
            "break_glass_groups",
            "image",
        ),
        "manifests",
    }


def test_every_helper_is_there_and_used() -> None:
    everything = "".join(files().values())
    defined = re.findall(r'define "(deferred-quota\.[^"]+)"', HELPERS)
    assert len(defined) == len(set(defined))
    assert set(re.findall(r'include "(deferred-quota\.[^"]+)"', everything)) == set(defined)


def test_definitions_outlive_the_release() -> None:
    definitions = "".join(text for name, text in generated().items() if "/definition" in name)
    assert definitions.count("kind: CustomResourceDefinition") == 5
    assert definitions.count("helm.sh/resource-policy: keep") == 5


def test_no_registration_is_written_with_a_ca_that_is_not_given() -> None:
    everything = "".join(generated().values())
    assert "caBundle:" not in everything
    assert re.findall(r".*\n.*caBundle:.*", HELPERS) == [
        "{{- with $root.Values.ca }}\ncaBundle: {{ b64enc . }}"
    ]


@given(OBJECTS)
def test_an_object_is_what_is_read_of_its_text(obj: dict[str, Any]) -> None:
    # the engine leaves everything as it is but the braces that are written for braces
    text = emit_documents([obj]).replace('{{ "{{" }}', "{{")
    assert yaml.safe_load(text) == obj


def test_no_text_of_an_object_is_an_action() -> None:
    text = emit_documents([{"a": "{{ .Values }}", "b": "{{ x }}\n{{ y }}", "{{ c }}": 1}])
    assert text.replace('{{ "{{" }}', "").count("{{") == 0


def test_actions_stand_where_their_values_go() -> None:
    document = {
        "value": Action("one"),
        "text": Text("in {{ two }}\nlines"),
        "object": {"inside": Block("three")},
        "file": Block("four", is_text=True),
        "perhaps": {"given": Given(".Values.given")},
        "list": ["a", When("five", {"name": "b", "more": Action("six")})],
    }
    assert (
        emit_documents([document, {"kind": "A"}])
        == """\
value: {{ one }}
text: |-
  in {{ two }}
  lines
object:
  inside:
    {{- three | nindent 4 }}
file: |
  {{- four | nindent 2 }}
perhaps:
  {{- with .Values.given }}
  given:
    {{- toYaml . | nindent 4 }}
  {{- end }}
list:
- a
{{- if five }}
- name: b
  more: {{ six }}
{{- end }}
---
kind: A
"""
    )


# -- values --------------------------------------------------------------------------------

GOOD: Final[dict[str, dict[str, Any]]] = {
    "nothing": {},
    "a resource": {"deferredResources": ["requests.nvidia.com/gpu"]},
    "words": {"mustSpecify": "off", "mirrorPods": "enforce", "terminatingPods": "Hold"},
    "more words": {"coverage": "platform", "quotaUpdate": "scopes", "gating": "auto"},
    "names": {"breakGlassGroups": ["a"], "trustedUsers": ["b"], "exemptNamespaces": ["c"]},
    "a queue": {"queue": {"order": "BestEffortFIFO", "maxOvertakes": 0, "maxWaitSeconds": 604800}},
    "times": {"timeouts": {"ledgerSeconds": 30, "expireReservationSeconds": 35}},
    "limits": {"limits": {"bodyBytes": 65536, "threads": 64, "reasonsPerSecond": 0}},
    "switches": {"extender": {"enabled": True}, "page": {"enabled": True, "port": 1024}},
    "rotation": {"certificates": {"rotate": False}},
    "reclaim": {"elastic": {"reclaim": {"mode": "Act", "afterSeconds": 0, "nodeFit": "Off"}}},
    "nodes": {"nodeFit": "Deny"},
    "gates of Jobs": {"jobGates": {"MutablePodResourcesForSuspendedJobs": "Auto"}},
    "a gate that is on": {"jobGates": {"MutableSchedulingDirectivesForSuspendedJobs": True}},
    "limited": {"limitedResources": [{"resource": "pods", "matchContains": ["", "a"]}]},
    "a scope": {"requireQuotaForPriority": [{"scopeName": "PriorityClass", "operator": "Exists"}]},
    "a rule": {"jobs": [{"growth": "Deny", "shrink": {"cpu": "Warn"}, "claims": "Allow"}]},
    "users": {"jobs": [{"resizers": {"users": ["a"], "serviceAccounts": ["a/b"]}}]},
    "selectors": {
        "jobs": [
            {
                "namespaces": {"matchLabels": {"a": ""}},
                "selector": {"matchExpressions": [{"key": "a", "operator": "Exists"}]},
            }
        ]
    },
    "its kind": {"apiVersion": "deferredquota.io/v1alpha1", "kind": "Configuration"},
}
BAD: Final[dict[str, dict[str, Any]]] = {
    "an unknown field": {"gateing": "auto"},
    "an unknown word": {"gating": "sometimes"},
    "a former name": {"gating": "gate"},
    "no text": {"gating": True},
    "a resource that is deferred anyway": {"deferredResources": ["cpu"]},
    "a resource with a space": {"deferredResources": ["requests.a/b c"]},
    "a device class": {"deferredResources": ["requests.deviceclass.resource.kubernetes.io/fast"]},
    "no list": {"deferredResources": "requests.a/b"},
    "an empty name": {"trustedUsers": [""]},
    "a number for a name": {"exemptNamespaces": [1]},
    "too little": {"timeouts": {"ledgerSeconds": 0}},
    "too much": {"limits": {"threads": 65}},
    "text for a number": {"limits": {"threads": "4"}},
    "truth for a number": {"limits": {"threads": True}},
    "text for a switch": {"page": {"enabled": "true"}},
    "an unknown field of a part": {"page": {"on": True}},
    "no object": {"queue": "StrictFIFO"},
    "an unknown state of a gate": {"jobGates": {"MutablePodResourcesForSuspendedJobs": "On"}},
    "a scope without operator": {"requireQuotaForPriority": [{"scopeName": "PriorityClass"}]},
    "a limit without resource": {"limitedResources": [{}]},
    "an unknown growth": {"jobs": [{"growth": "Sometimes"}]},
    "an unknown growth of a resource": {"jobs": [{"growth": {"cpu": "Warn"}}]},
    "an empty resource": {"jobs": [{"shrink": {"": "Warn"}}]},
    "an account without namespace": {"jobs": [{"resizers": {"serviceAccounts": ["a"]}}]},
    "a label of a number": {"jobs": [{"selector": {"matchLabels": {"a": 1}}}]},
    "another kind": {"kind": "Other"},
}


def schema() -> dict[str, Any]:
    return json.loads(generated()["values.schema.json"])  # type: ignore[no-any-return]


def refuses(configuration: dict[str, Any]) -> bool:
    values = {**yaml.safe_load(generated()["values.yaml"]), "configuration": configuration}
    return bool(list(schema_errors(values, schema())))


def cannot_be_loaded(configuration: dict[str, Any]) -> bool:
    head = {"apiVersion": "deferredquota.io/v1alpha1", "kind": "Configuration"}
    try:
        load_configuration(json.dumps({**head, **configuration}), "values")
    except ConfigurationError:
        return True
    return False


@pytest.mark.parametrize("configuration", GOOD.values(), ids=GOOD.keys())
def test_the_schema_accepts_what_our_processes_load(configuration: dict[str, Any]) -> None:
    assert not refuses(configuration)
    assert not cannot_be_loaded(configuration)


@pytest.mark.parametrize("configuration", BAD.values(), ids=BAD.keys())
def test_the_schema_refuses_what_our_processes_refuse(configuration: dict[str, Any]) -> None:
    assert refuses(configuration)
    assert cannot_be_loaded(configuration)


def test_the_schema_says_something_of_every_part_of_the_configuration() -> None:
    def vague(part: Any, path: str) -> list[str]:
        if not part:
            return [path]
        inside = {**part.get("properties", {}), "[]": part.get("items", True)}
        return [
            one
            for name, each in inside.items()
            if each is not True
            for one in vague(each, f"{path}.{name}")
        ]

    assert vague(schema()["properties"]["configuration"], "configuration") == []


@pytest.mark.parametrize("line_break", ["\n", "\u2028", "\x85"])
def test_a_name_that_would_break_an_expression_is_refused(line_break: str) -> None:
    for field in ("trustedUsers", "breakGlassGroups", "exemptNamespaces"):
        assert refuses({field: [f"a{line_break}b"]})


def test_every_value_is_in_the_table() -> None:
    def paths(value: Any, schema: Any, path: str = "") -> list[str]:
        inside = schema.get("properties", {}) if "description" not in schema else {}
        if not inside:
            return [path]
        return [one for name in value for one in paths(value[name], inside[name], f"{path}.{name}")]

    values = yaml.safe_load(generated()["values.yaml"])
    rows = re.findall(r"^\| `([^`]+)` \|", generated()["README.md"], re.MULTILINE)
    assert [path.removeprefix(".") for path in paths(values, schema())] == rows
