"""Workflows for GitHub and GitLab: pinned, with few rights, and calling scripts that are there."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, cast

import pytest
import yaml

ROOT: Final = Path(__file__).parent.parent
WORKFLOWS: Final = sorted((ROOT / ".github/workflows").glob("*.yaml"))
GITLAB: Final = ROOT / ".gitlab-ci.yml"
_SCRIPT: Final = re.compile(r"(?<![\w/.-])(?:scripts|\.ci)/[a-z]+")
_PLACES: Final = re.compile(r"\b[a-z0-9-]+\.(?:io|com|org|dev)\b|/home/|/root/|--privileged")
"""Hosts, places of one machine, and programs that get all rights on it."""
_PINNED: Final = re.compile(r"^ *-? *uses: ([\w./-]+)@([0-9a-f]{40}) # v\d+\.\d+\.\d+$")
WRITES: Final = {
    "release.yaml packages": {"id-token", "attestations"},
    "release.yaml image": {"packages"},
    "release.yaml index": {"packages", "id-token", "attestations"},
}
"""What jobs may write, each for what it publishes."""


def read(path: Path) -> dict[str, Any]:
    return cast("dict[str, Any]", yaml.safe_load(path.read_text()))


def jobs() -> Iterator[tuple[str, dict[str, Any]]]:
    for path in WORKFLOWS:
        for name, job in read(path)["jobs"].items():
            yield f"{path.name} {name}", job


JOBS: Final = dict(jobs())


def commands(job: dict[str, Any]) -> str:
    return "\n".join(step.get("run", "") for step in job.get("steps", ()))


def test_every_action_is_named_by_its_hash_and_version() -> None:
    hashes: dict[str, set[str]] = {}
    for path in WORKFLOWS:
        for line in path.read_text().splitlines():
            if "uses:" in line and "uses: ./" not in line:
                found = _PINNED.match(line)
                assert found is not None, f"{path.name}: {line}"
                hashes.setdefault(found[1], set()).add(found[2])
    assert {name for name, some in hashes.items() if len(some) > 1} == set()


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_has_no_rights_by_itself(path: Path) -> None:
    workflow = read(path)
    assert workflow["permissions"] == {}
    # YAML takes `on` for a truth value
    assert "pull_request_target" not in str(workflow[cast("str", True)])


@pytest.mark.parametrize("job", JOBS.values(), ids=JOBS.keys())
def test_a_job_has_the_least_rights_and_ends(
    job: dict[str, Any], request: pytest.FixtureRequest
) -> None:
    name = request.node.callspec.id
    written = {right for right, level in job["permissions"].items() if level != "read"}
    assert written == WRITES.get(name, set())
    if str(job.get("uses", "")).startswith("./"):
        return
    assert job["timeout-minutes"] <= 120
    for step in job["steps"]:
        if str(step.get("uses", "")).startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False


@pytest.mark.parametrize("job", JOBS.values(), ids=JOBS.keys())
def test_no_text_of_an_event_becomes_a_command(job: dict[str, Any]) -> None:
    assert "${{" not in commands(job)


def test_nothing_is_published_before_the_checks() -> None:
    release, checks = (
        read(ROOT / ".github/workflows" / name) for name in ("release.yaml", "ci.yaml")
    )
    assert "workflow_call" in checks[cast("str", True)]
    for job in release["jobs"].values():
        first = job
        while "needs" in first:
            first = release["jobs"][first["needs"]]
        assert first["uses"] == "./.github/workflows/ci.yaml"
    gitlab = read(GITLAB)
    assert gitlab["stages"] == ["check", "build"]
    assert "needs" not in GITLAB.read_text()
    for name in ("packages", "release-image"):
        job = gitlab[name]
        assert {**gitlab[job.get("extends", name)], **job}["stage"] == "build"


@pytest.mark.parametrize("path", [*WORKFLOWS, GITLAB], ids=lambda path: path.name)
def test_no_host_and_no_place_of_a_machine_is_written_down(path: Path) -> None:
    assert _PLACES.findall(path.read_text()) == []


def test_images_are_chosen_by_the_forge_that_runs_the_jobs() -> None:
    jobs = [each for each in read(GITLAB).values() if isinstance(each, dict)]
    images = [each["image"] for each in jobs if "image" in each]
    images += [one["name"] for each in jobs for one in each.get("services", ())]
    assert images == ["$PYTHON_IMAGE", "$DOCKER_IMAGE", "$DOCKER_SERVICE_IMAGE"]


def test_the_scripts_are_there_and_can_be_run() -> None:
    gitlab = [str(job.get("script", "")) for job in read(GITLAB).values() if isinstance(job, dict)]
    called = set(_SCRIPT.findall("\n".join([*map(commands, JOBS.values()), *gitlab])))
    assert {"scripts/check", ".ci/run", ".ci/update", "scripts/setup"} <= called
    assert [name for name in called if not os.access(ROOT / name, os.X_OK)] == []


def test_a_release_has_provenance_and_a_bill_of_materials() -> None:
    release = read(ROOT / ".github/workflows/release.yaml")["jobs"]
    packages, index = (release[name]["steps"] for name in ("packages", "index"))
    (of_packages,) = attested(packages)
    assert of_packages == {"subject-path": "dist/*"}
    assert "--target sbom --output dist ." in commands(release["packages"])
    provenance, bill = attested(index)
    subject = ("subject-name", "subject-digest", "push-to-registry")
    assert [bill[each] for each in subject] == [provenance[each] for each in subject]
    assert (bill["sbom-path"], "sbom-path" in provenance) == ("sbom.cdx.json", False)
    gitlab = read(GITLAB)
    assert "scripts/sbom > dist/sbom.cdx.json" in gitlab["packages"]["script"]
    assert gitlab["packages"]["artifacts"]["reports"] == {"cyclonedx": "dist/sbom.cdx.json"}
    pushes = [str(release["image"]), str(gitlab["release-image"])]
    assert all("--push --provenance mode=max" in each for each in pushes)


def attested(steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [each["with"] for each in steps if "actions/attest@" in each.get("uses", "")]


def test_both_forges_run_the_same() -> None:
    gitlab = "\n".join(str(job) for job in read(GITLAB).values())
    for command in (
        "scripts/check",
        "scripts/site",
        ".ci/run",
        ".ci/update",
        "hatchling build -d dist",
        "scripts/krew dist/*.whl",
    ):
        assert command in gitlab
        assert any(command in commands(job) for job in JOBS.values())


def test_what_a_forge_checks_is_in_the_one_script_too() -> None:
    checks = read(ROOT / ".github/workflows/ci.yaml")["jobs"].values()
    called = set(_SCRIPT.findall("\n".join(map(commands, checks)))) - {".ci/run"}
    assert called == {"scripts/check", "scripts/site"}
    assert called <= set(_SCRIPT.findall((ROOT / ".ci/run").read_text()))


def test_updates_are_proposed_for_all_that_is_pinned() -> None:
    updates = read(ROOT / ".github/dependabot.yml")["updates"]
    (go,) = [each for each in updates if each["package-ecosystem"] == "gomod"]
    modules = {f"/{path.parent.relative_to(ROOT)}" for path in (ROOT / "tests").rglob("go.mod")}
    assert set(go["directories"]) == modules
    assert {"github-actions", "docker"} <= {each["package-ecosystem"] for each in updates}
