"""The definitions of elastic quotas: ours where there are none, another program's left alone."""

from __future__ import annotations

from typing import Any, Final, cast

import pytest

from tests.controllers.elastic.objects import an_elastic_quota
from tests.install.manifests import Manifest, the_one
from tests.install.twin import QUICK, Twin, run
from webhook.install.uninstall import Removal, uninstall
from webhook.kube.api import (
    COMPOSITE_ELASTIC_QUOTAS,
    ELASTIC_QUOTAS,
    ClusterApi,
    Kind,
    NotFoundError,
    kind_of,
)
from webhook.quota.elastic.elastic_quotas import elastic_quota_errors

KINDS: Final = {"eq": ELASTIC_QUOTAS, "ceq": COMPOSITE_ELASTIC_QUOTAS}
DEFINITIONS: Final = kind_of(
    "apiextensions.k8s.io/v1", "CustomResourceDefinition", namespaced=False
)


def name_of(kind: Kind) -> str:
    return f"{kind.plural}.{kind.group}"


def version(kind: Kind) -> Manifest:
    (found,) = the_one("CustomResourceDefinition", name_of(kind))["spec"]["versions"]
    return cast("Manifest", found)


def properties(kind: Kind, part: str) -> Manifest:
    schema = version(kind)["schema"]["openAPIV3Schema"]
    return cast("Manifest", schema["properties"][part])


@pytest.mark.parametrize(("short", "kind"), KINDS.items(), ids=KINDS)
def test_names_are_those_of_nos(short: str, kind: Kind) -> None:
    spec = the_one("CustomResourceDefinition", name_of(kind))["spec"]
    assert (spec["group"], version(kind)["name"]) == (kind.group, kind.version)
    assert (spec["names"]["kind"], spec["names"]["plural"]) == (kind.kind, kind.plural)
    assert spec["names"]["shortNames"] == [short]
    assert spec["scope"] == "Namespaced"
    assert version(kind)["subresources"] == {"status": {}}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_columns_show_fields_that_are_there(kind: Kind) -> None:
    for column in version(kind)["additionalPrinterColumns"]:
        _, part, name = column["jsonPath"].partition("[")[0].split(".")[:3]
        if part != "metadata":
            assert name in properties(kind, part)["properties"], column


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_every_field_that_is_read_is_stored(kind: Kind) -> None:
    amounts: Any = {"cpu": "4", "nos.nebuly.com/gpu-memory": 40}
    more = {"namespaces": ["x", "y"]} if kind is COMPOSITE_ELASTIC_QUOTAS else {}
    spec = {
        "lendable": amounts,
        "weight": 2,
        "reclaim": {"afterSeconds": 5, "protectSeconds": 60},
        **more,
    }
    made: Any = an_elastic_quota("team-a", amounts, amounts, **spec)
    assert elastic_quota_errors(made) == []
    assert made["spec"].keys() <= properties(kind, "spec")["properties"].keys()


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_no_rule_compares_amounts(kind: Kind) -> None:
    """Up to Kubernetes 1.33 such a rule is refused: each may be a string as long as a request.

    Source: kubernetes v1.33, apiserver/pkg/cel/common/schemas.go SchemaDeclType.
    """
    assert "x-kubernetes-validations" not in properties(kind, "spec")


def remove(twin: Twin) -> list[str]:
    lines: list[str] = []
    uninstall(cast("ClusterApi", twin), Removal(patience=QUICK), lines.append)
    return lines


def stored(twin: Twin, kind: Kind) -> Any:
    return twin.api.get(DEFINITIONS, name_of(kind))


def test_those_of_another_program_stay_as_they_are() -> None:
    twin = Twin()
    for kind in KINDS.values():
        status = {"conditions": [{"type": "Established", "status": "True"}]}
        twin.api.create(DEFINITIONS, {"metadata": {"name": name_of(kind)}, "spec": {"own": "yes"}})
        twin.api.patch(DEFINITIONS, name_of(kind), {"status": status}, subresource="status")
    _, lines = run(twin)
    told = "is another program's, and left as it is"
    names = [f"CustomResourceDefinition {name_of(kind)}: {told}" for kind in KINDS.values()]
    assert [line for line in lines if told in line] == names
    assert [stored(twin, kind)["spec"] for kind in KINDS.values()] == [{"own": "yes"}] * 2
    twin.api.create(ELASTIC_QUOTAS, an_elastic_quota("team-a"))
    lines = remove(twin)
    assert "ElasticQuota team-a/q: is not enforced from now on; it stays" in lines
    assert sorted(line for line in lines if told in line) == sorted(names)
    assert [stored(twin, kind)["spec"] for kind in KINDS.values()] == [{"own": "yes"}] * 2


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_ours_come_and_go_with_an_installation(kind: Kind) -> None:
    twin = Twin()
    run(twin)
    assert stored(twin, kind)["spec"]["names"]["kind"] == kind.kind
    remove(twin)
    with pytest.raises(NotFoundError):
        stored(twin, kind)
