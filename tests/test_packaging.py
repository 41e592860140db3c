"""What is shipped: the lock files, the built packages, the image."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parent.parent
LOCKS = ("build", "dev", "runtime")


def requirements(part: str) -> list[Requirement]:
    with (ROOT / "pyproject.toml").open("rb") as file:
        table = tomllib.load(file)
    written: dict[str, list[str]] = {
        "project": table["project"]["dependencies"],
        "dev": table["project"]["optional-dependencies"]["dev"],
        "build": table["build-system"]["requires"],
    }
    return [Requirement(text) for text in written[part]]


def lock_text(name: str) -> str:
    return (ROOT / "requirements" / f"{name}.txt").read_text()


def entries(name: str) -> Iterator[str]:
    joined = re.sub(r"\\\n\s*", "", lock_text(name))
    yield from (line for line in joined.splitlines() if line and not line.lstrip().startswith("#"))


def pins(name: str) -> dict[str, Version]:
    found: dict[str, Version] = {}
    for entry in entries(name):
        requirement = Requirement(entry.partition(" --hash")[0])
        (pin,) = requirement.specifier
        assert pin.operator == "=="
        found[canonicalize_name(requirement.name)] = Version(pin.version)
    return found


@pytest.mark.parametrize(
    ("part", "lock"),
    [("project", "runtime"), ("project", "dev"), ("dev", "dev"), ("build", "build")],
)
def test_the_lock_has_versions_that_pyproject_allows(part: str, lock: str) -> None:
    locked = pins(lock)
    unmet = [
        str(each)
        for each in requirements(part)
        if not each.specifier.contains(locked.get(canonicalize_name(each.name), "0.dev0"))
    ]
    assert unmet == [], "run scripts/lock"


@pytest.mark.parametrize("lock", ["build", "runtime"])
def test_a_smaller_lock_has_the_versions_of_the_development_one(lock: str) -> None:
    everything = pins("dev")
    assert {name: everything.get(name) for name in pins(lock)} == pins(lock), "run scripts/lock"


def test_the_runtime_lock_has_no_tool() -> None:
    tools = {canonicalize_name(each.name) for each in requirements("dev")}
    assert tools.isdisjoint(pins("runtime"))


@pytest.mark.parametrize("lock", LOCKS)
def test_every_locked_package_has_hashes(lock: str) -> None:
    bare = [each for each in entries(lock) if not re.search(r"--hash=sha256:[0-9a-f]{64}", each)]
    assert bare == []


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_names_no_index(lock: str) -> None:
    assert "://" not in lock_text(lock)
    assert "--index" not in lock_text(lock)


def run_hatchling(folder: Path, *arguments: str, cwd: Path, umask: int = 0o022) -> Path:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", str(folder), *arguments],
        cwd=cwd,
        umask=umask,
        check=True,
        capture_output=True,
    )
    (built,) = folder.iterdir()
    return built


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_hatchling(tmp_path_factory.mktemp("sdist"), "-t", "sdist", cwd=ROOT)


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel as an installer makes it: from what the source package holds."""
    folder = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (source,) = folder.iterdir()
    return zipfile.ZipFile(
        run_hatchling(tmp_path_factory.mktemp("wheel"), "-t", "wheel", cwd=source)
    )


def test_the_wheel_holds_the_package_its_types_and_its_licence(wheel: zipfile.ZipFile) -> None:
    names = {re.sub(r"-[^/]*\.dist-info", ".dist-info", name) for name in wheel.namelist()}
    assert {
        "webhook/__init__.py",
        "webhook/__main__.py",
        "webhook/py.typed",
        "webhook/quota/amounts/quantity.py",
        "deferred_quota.dist-info/licenses/LICENSE",
    } <= names


def test_the_wheel_holds_every_module(wheel: zipfile.ZipFile) -> None:
    modules = {str(path.relative_to(ROOT)) for path in (ROOT / "webhook").rglob("*.py")}
    assert {name for name in wheel.namelist() if name.endswith(".py")} == modules


def test_the_wheel_holds_the_files_of_the_page(wheel: zipfile.ZipFile) -> None:
    folder = ROOT / "webhook/page/static"
    files = {str(path.relative_to(ROOT)) for path in folder.iterdir()}
    assert len(files) == 3
    assert files <= {*wheel.namelist()}


def test_packages_are_the_same_bytes_wherever_they_are_built(
    sdist: Path, wheel: zipfile.ZipFile, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "another path" / "deferred-quota"
    elsewhere.mkdir(parents=True)
    parts = ["webhook", "pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", ".gitignore"]
    subprocess.run(
        ["/bin/cp", "-R", *(str(ROOT / part) for part in parts), elsewhere], check=True, umask=0o077
    )
    for kind, first in (("sdist", sdist), ("wheel", Path(str(wheel.filename)))):
        again = run_hatchling(tmp_path / kind, "-t", kind, cwd=elsewhere, umask=0o077)
        assert again.name == first.name
        assert again.read_bytes() == first.read_bytes(), kind


def test_neither_package_holds_tests_or_tools(sdist: Path, wheel: zipfile.ZipFile) -> None:
    with tarfile.open(sdist) as archive:
        shipped = [name.partition("/")[2] for name in archive.getnames()]
    tops = {name.partition("/")[0] for name in (*shipped, *wheel.namelist())}
    assert tops.isdisjoint({"tests", "scripts", "certs", "requirements", ".venv"})


def test_the_wheel_installs_all_programs(wheel: zipfile.ZipFile) -> None:
    (name,) = [name for name in wheel.namelist() if name.endswith("entry_points.txt")]
    assert wheel.read(name).decode().split() == [
        "[console_scripts]",
        "deferred-quota",
        "=",
        "webhook.cli:main",
        "kubectl-deferred_quota",
        "=",
        "webhook.cli:main",
        "kubectl_complete-deferred_quota",
        "=",
        "webhook.cli.completion:kubectl_main",
    ]


def instructions() -> list[list[str]]:
    text = re.sub(r"\\\n", " ", (ROOT / "Dockerfile").read_text())
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [shlex.split(line) for line in lines]


def test_the_image_runs_as_an_unprivileged_number() -> None:
    """A name could not be checked by `runAsNonRoot`."""
    last = max(i for i, line in enumerate(instructions()) if line[0] == "FROM")
    assert ["USER", "65532:65532"] in instructions()[last:]


def test_the_image_installs_nothing_without_a_hash_but_the_project_itself() -> None:
    text = re.sub(r"\\\n", " ", (ROOT / "Dockerfile").read_text())
    installs = re.findall(r"pip\b[^&\n]* install [^&\n]*", text)
    assert len(installs) == 3
    assert all("--require-hashes" in each or "--no-index" in each for each in installs)


def test_the_image_is_built_from_what_the_build_context_lets_through() -> None:
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert "*" in ignored
    copied = [
        source
        for line in instructions()
        if line[0] == "COPY" and not line[1].startswith("--from")
        for source in line[1:-1]
    ]
    assert sorted(f"!{source}" for source in copied) == sorted(
        line for line in ignored if line.startswith("!")
    )
    assert [source for source in copied if not (ROOT / source).exists()] == []


def test_the_base_image_is_named_by_its_digest() -> None:
    stages = {line[3] for line in instructions() if line[0] == "FROM" and line[2:3] == ["AS"]}
    images = {line[1] for line in instructions() if line[0] == "FROM"} - stages - {"scratch"}
    (base,) = images
    assert re.fullmatch(r"python:3\.13-slim@sha256:[0-9a-f]{64}", base)


def test_the_image_has_no_pip() -> None:
    text = (ROOT / "Dockerfile").read_text()
    assert "venv --without-pip /opt/venv" in text
    final = text.rpartition("\nFROM ")[2]
    for place in ("bin/pip*", "lib/python3.*/ensurepip", "lib/python3.*/site-packages/pip*"):
        assert f"/usr/local/{place}" in final


def left_out() -> list[str]:
    lines = (ROOT / "requirements/left-out.txt").read_text().splitlines()
    return [line for line in lines if not line.startswith("#")]


def test_the_image_leaves_out_what_the_file_names() -> None:
    assert "uninstall --yes -r requirements/left-out.txt" in (ROOT / "Dockerfile").read_text()


def test_what_the_image_leaves_out_is_needed_by_nothing_that_stays() -> None:
    locked = re.findall(r"(?m)^([\w-]+)==", (ROOT / "requirements/runtime.txt").read_text())
    gone = set(left_out())
    assert gone < set(locked)
    needed = {
        (name, Requirement(each).name)
        for name in locked
        if name not in gone
        for each in distribution(name).requires or ()
        if "extra ==" not in each
    }
    assert {name for name, wanted in needed if wanted in gone} == {"kubernetes"}


def test_what_the_image_keeps_is_small() -> None:
    """Packages as they are unpacked, on Linux; what is compiled of them is not counted."""
    files = [
        Path(str(each.locate()))
        for name in pins("runtime").keys() - set(left_out())
        for each in distribution(name).files or ()
        if each.suffix != ".pyc" and each.parts[:2] != ("kubernetes", "aio")
    ]
    assert sum(each.stat().st_size for each in files if each.is_file()) < 80_000_000


def test_what_the_image_leaves_out_is_never_imported() -> None:
    blocked = {"kubernetes.aio", *(name.replace("-", "_") for name in left_out())}
    heavy = (ROOT / "webhook/kube/rest/credentials.py").read_text()
    imports = re.findall(r"(?m)^ +(from kubernetes[.\w]* import \w+)", heavy)
    assert len(imports) == 5
    program = f"""
import pkgutil, sys
from importlib import import_module
sys.modules.update(dict.fromkeys({blocked!r}))  # an import of any of these raises
import webhook
for module in pkgutil.walk_packages(webhook.__path__, "webhook."):
    if not module.name.endswith("__main__"):
        import_module(module.name)
{"; ".join(imports)}
"""
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT, timeout=120)
