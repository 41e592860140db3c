"""The bill of materials of the image: `scripts/sbom`."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib import import_module
from importlib.metadata import PathDistribution
from pathlib import Path
from typing import Any, Final, cast

import pytest

from tests.json_schema import schema_errors
from webhook import __version__

sbom: Final[Any] = import_module("scripts.sbom")
ROOT: Final = Path(__file__).parent.parent
SCHEMA: Final = json.loads((ROOT / "tests/vectors/cyclonedx-1.6.schema.json").read_text())
LOCK: Final = sbom.read_lock((ROOT / "requirements/runtime.txt").read_text())
LEFT_OUT: Final = sbom.read_names((ROOT / "requirements/left-out.txt").read_text())


def written(**environment: str) -> bytes:
    """Return what the program prints, in an environment of its own."""
    return subprocess.run(
        [sys.executable, "scripts/sbom.py"],
        cwd=ROOT,
        env={**os.environ, "SOURCE_DATE_EPOCH": "", **environment},
        check=True,
        capture_output=True,
    ).stdout


@pytest.fixture(scope="module")
def bill() -> dict[str, Any]:
    return cast("dict[str, Any]", json.loads(written()))


def test_the_bill_is_what_the_schema_of_cyclonedx_says(bill: dict[str, Any]) -> None:
    assert list(schema_errors(bill, SCHEMA)) == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("hashes", [{"alg": "SHA-256", "content": "no hash"}]),
        ("licenses", [{"license": {"id": "no identifier of SPDX"}}]),
        ("licenses", [{"expression": "MIT"}, {"expression": "ISC"}]),
        ("type", "package"),
    ],
)
def test_the_schema_takes_no_other_component(
    bill: dict[str, Any], field: str, value: object
) -> None:
    (first, *others) = bill["components"]
    assert list(schema_errors({**bill, "components": [{**first, field: value}, *others]}, SCHEMA))


def test_every_package_that_the_image_keeps_is_listed(bill: dict[str, Any]) -> None:
    assert {each["name"] for each in bill["components"]} == LOCK.keys() - LEFT_OUT
    project = bill["metadata"]["component"]
    assert (project["name"], project["version"]) == ("deferred-quota", __version__)


def test_a_package_has_version_licence_address_and_the_hashes_of_the_lock(
    bill: dict[str, Any],
) -> None:
    for each in bill["components"]:
        locked = LOCK[each["name"]]
        assert each["version"] == locked.version
        assert each["licenses"]
        assert each["purl"] == f"pkg:pypi/{each['name']}@{locked.version}"
        assert {one["content"] for one in each["hashes"]} == {*locked.hashes} != set()
    licences = {each["name"]: each["licenses"] for each in bill["components"]}
    assert licences["cryptography"][0]["expression"] == "Apache-2.0 OR BSD-3-Clause"
    assert licences["certifi"][0]["license"]["id"] == "MPL-2.0"


def test_the_graph_is_that_of_the_installed_packages(bill: dict[str, Any]) -> None:
    names = {
        each["bom-ref"]: each["name"]
        for each in (bill["metadata"]["component"], *bill["components"])
    }
    graph = {
        names[each["ref"]]: {names[one] for one in each["dependsOn"]}
        for each in bill["dependencies"]
    }
    assert graph.keys() == {*names.values()}
    text = (ROOT / "pyproject.toml").read_text().split("dependencies = [")[1].split("]")[0]
    assert graph["deferred-quota"] == {name.lower() for name in re.findall(r'"([\w-]+)', text)}
    assert graph["cryptography"] == {"cffi"}
    assert graph["requests-oauthlib"] == {"oauthlib", "requests"}


def test_the_same_packages_give_the_same_bytes(bill: dict[str, Any]) -> None:
    assert "timestamp" not in bill["metadata"]
    first = written(PYTHONHASHSEED="1", SOURCE_DATE_EPOCH="1700000000", TZ="Asia/Tokyo")
    assert written(PYTHONHASHSEED="2", SOURCE_DATE_EPOCH="1700000000") == first
    assert json.loads(first)["metadata"]["timestamp"] == "2023-11-14T22:13:20+00:00"
    assert json.loads(first)["serialNumber"] != bill["serialNumber"]


def package(folder: Path, name: str, *headers: str, version: str = "1.0") -> PathDistribution:
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    lines = ["Metadata-Version: 2.4", f"Name: {name}", f"Version: {version}", *headers, ""]
    (info / "METADATA").write_text("\n".join(lines))
    return PathDistribution(info)


LICENCES: Final = {
    "an expression": (
        ["License-Expression: MIT OR ISC"],
        {"acknowledgement": "declared", "expression": "MIT OR ISC"},
    ),
    "an identifier in the older field": (
        ["License: mit", "Classifier: License :: OSI Approved :: BSD License"],
        {"license": {"acknowledgement": "declared", "id": "MIT"}},
    ),
    "words": (
        ["License: Do what you want"],
        {"license": {"acknowledgement": "declared", "name": "Do what you want"}},
    ),
    "a classifier": (
        ["Classifier: License :: OSI Approved :: BSD License"],
        {"license": {"acknowledgement": "declared", "name": "BSD License"}},
    ),
}


@pytest.mark.parametrize(("headers", "expected"), LICENCES.values(), ids=LICENCES.keys())
def test_a_licence_is_what_the_package_declares(
    headers: list[str], expected: object, tmp_path: Path
) -> None:
    assert sbom.declared_license(package(tmp_path, "some", *headers)) == expected


MIT: Final = "License-Expression: MIT"
SOME: Final[dict[str, Any]] = {"some": sbom.LockedPackage("1.0", ("ab" * 32,))}
REFUSED: Final = {
    "a package without a licence": ([], SOME, "declares no licence"),
    "another version than is locked": (
        [MIT],
        {"some": sbom.LockedPackage("1.1", ())},
        "some 1.0 is installed, and 1.1 is locked",
    ),
    "a package that is not locked": ([MIT], {}, "not in the lock: some"),
    "a package that is not installed": (
        [MIT, "Requires-Dist: other"],
        SOME,
        "other is needed and not installed",
    ),
}


@pytest.mark.parametrize(("headers", "lock", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_no_bill_is_made_of(
    headers: list[str], lock: dict[str, Any], message: str, tmp_path: Path
) -> None:
    installed = {
        "deferred-quota": package(tmp_path, "deferred-quota", MIT, "Requires-Dist: some"),
        "some": package(tmp_path, "some", *headers),
    }
    with pytest.raises(ValueError, match=message):
        sbom.bill_of_materials(installed, lock, frozenset())


def test_what_only_an_extra_needs_is_listed_where_the_extra_is_asked_for(tmp_path: Path) -> None:
    some = package(tmp_path, "some", MIT, 'Requires-Dist: other; extra == "more"')
    project = package(tmp_path, "deferred-quota", MIT, "Requires-Dist: some")
    eager = package(tmp_path / "eager", "deferred-quota", MIT, "Requires-Dist: some[more]")
    other = package(tmp_path, "other", MIT)
    for root, needed in ((project, frozenset[str]()), (eager, frozenset({"other"}))):
        installed = {"deferred-quota": root, "some": some, "other": other}
        assert sbom.dependency_graph(installed, frozenset())["some"] == needed


def test_an_environment_that_holds_more_is_refused() -> None:
    site = Path(pytest.__file__).parent.parent
    result = subprocess.run(
        [sys.executable, "scripts/sbom.py", "--site", str(site)],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 1
    assert result.stderr.startswith("sbom: not needed: ")
    assert "pytest" in result.stderr
