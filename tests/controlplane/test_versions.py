"""Other versions of Kubernetes: their module, and where they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.controlplane import versions
from tests.controlplane.binaries import (
    ASSETS,
    PACKAGES,
    BinariesError,
    built_directory,
    cache_root,
    read_module,
)

OWN = """
// This is a generated file. Do not edit directly.

module k8s.io/kubernetes

go 1.22.0

godebug default=go1.22

require (
\tgithub.com/armon/circbuf v0.0.0-20150827004946-bbbad097214e
\tk8s.io/api v0.0.0
\tk8s.io/klog/v2 v2.120.1
)

require (
\tcloud.google.com/go v0.110.6 // indirect
)

replace (
\tk8s.io/api => ./staging/src/k8s.io/api
\tk8s.io/sample-controller => ./staging/src/k8s.io/sample-controller
)
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(ASSETS, raising=False)
    return cache_root()


def programs(directory: Path) -> Path:
    directory.mkdir(parents=True)
    for name in PACKAGES:
        (directory / name).write_text("#!/bin/sh\n")
        (directory / name).chmod(0o755)
    return directory


def quiet(_line: str) -> None:
    pass


def test_the_module_of_a_version_takes_the_libraries_of_the_same_release() -> None:
    assert versions.module_text(OWN, "v1.30.14") == (
        "module deferredquota.io/controlplane\n"
        "go 1.22.0\n"
        "godebug default=go1.22\n"
        "require (\n"
        "\tk8s.io/kubernetes v1.30.14\n"
        "\tgithub.com/armon/circbuf v0.0.0-20150827004946-bbbad097214e\n"
        "\tk8s.io/klog/v2 v2.120.1\n"
        "\tcloud.google.com/go v0.110.6\n"
        "\tk8s.io/api v0.30.14\n"
        "\tk8s.io/sample-controller v0.30.14\n"
        ")\n"
        "replace (\n"
        "\tk8s.io/api => k8s.io/api v0.30.14\n"
        "\tk8s.io/sample-controller => k8s.io/sample-controller v0.30.14\n"
        ")\n"
    )


def test_a_version_that_is_here_is_not_asked_for(cache: Path) -> None:
    programs(built_directory(read_module()))
    older, newest = (programs(cache / name) for name in ("v1.30.9", "v1.30.14"))
    programs(cache / "v1.3.0")
    (cache / "v1.30.15").mkdir()  # a build that did not end
    assert versions.provide_version("1.30", quiet) == newest
    assert versions.provide_version("v1.30.9", quiet) == older


def test_a_version_has_the_etcd_of_the_usual_one(cache: Path) -> None:
    usual = programs(built_directory(read_module()))
    directory = programs(cache / "v1.30.14")
    (directory / "etcd").unlink()
    versions.provide_version("1.30", quiet)
    assert (directory / "etcd").resolve() == usual / "etcd"


@pytest.mark.parametrize("text", ["", "1", "new", "1.2.3.4"])
def test_what_is_no_version_is_said(text: str) -> None:
    with pytest.raises(BinariesError, match=r"must be a release of Kubernetes, such as 1\.30"):
        versions.provide_version(text, quiet)


def test_a_version_that_there_is_not_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = tmp_path / "go"
    go.write_text("#!/bin/sh\necho 'no matching versions for query'; exit 1\n")
    go.chmod(0o755)
    monkeypatch.setattr(versions, "find_go", lambda *_: go)
    told = r"(?s)k8s.io/kubernetes v1.99 cannot be had.*no matching versions.*GOPROXY"
    with pytest.raises(BinariesError, match=told):
        versions.provide_version("1.99", quiet)
    assert not cache_root().exists()
