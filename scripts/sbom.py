"""Bill of materials of the packages in the image: CycloneDX 1.6, out of an installed environment.

Names, versions, licences and the graph are those of the installed packages, hashes those of the
lock. The same packages give the same bytes: the serial number is made from the content, and there
is a time only where SOURCE_DATE_EPOCH gives one. Needs `packaging`, which requirements/build.txt
has.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any, Final
from uuid import NAMESPACE_URL, uuid5

from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT: Final = Path(__file__).parent.parent
PROJECT: Final = "deferred-quota"


@dataclass(frozen=True, slots=True)
class LockedPackage:
    """A package of the lock."""

    version: str
    hashes: tuple[str, ...]
    """SHA-256 of each file that may be installed: the source, and wheels of all platforms."""


def read_lock(text: str) -> Mapping[str, LockedPackage]:
    """Return the packages of a lock by their canonical names."""
    found: dict[str, LockedPackage] = {}
    for entry in re.sub(r"\\\n\s*", "", text).splitlines():
        if (match := re.match(r"([\w.-]+)==([^\s;]+)", entry)) is not None:
            hashes = tuple(sorted(re.findall(r"--hash=sha256:(\w+)", entry)))
            found[canonicalize_name(match[1])] = LockedPackage(match[2], hashes)
    return found


def read_names(text: str) -> frozenset[str]:
    """Return the names in a file of requirements without versions."""
    return frozenset(
        canonicalize_name(line) for line in text.split("\n") if line and not line.startswith("#")
    )


def installed_in(site: Path | None) -> Mapping[str, Distribution]:
    """Return the installed packages of a folder, or of this Python, by their canonical names."""
    found = distributions() if site is None else distributions(path=[str(site)])
    return {canonicalize_name(each.metadata["Name"]): each for each in found}


def dependency_graph(
    installed: Mapping[str, Distribution], left_out: frozenset[str]
) -> Mapping[str, frozenset[str]]:
    """Return what the project needs on this platform, each with what it needs itself.

    Raises:
        ValueError: A package is needed and not installed.
    """
    graph: dict[str, set[str]] = {}
    pending = [(PROJECT, frozenset[str]())]
    seen = set(pending)
    while pending:
        name, extras = pending.pop()
        if name not in installed:
            raise ValueError(f"{name} is needed and not installed")
        needed = graph.setdefault(name, set())
        for requirement in map(Requirement, installed[name].requires or ()):
            marker = requirement.marker
            key = (canonicalize_name(requirement.name), frozenset(requirement.extras))
            applies = marker is None or any(
                marker.evaluate({"extra": extra}) for extra in ("", *extras)
            )
            if applies and key[0] not in left_out:
                needed.add(key[0])
                if key not in seen:
                    seen.add(key)
                    pending.append(key)
    return {name: frozenset(needed) for name, needed in graph.items()}


def component(
    name: str, package: Distribution, locked: LockedPackage | None
) -> Iterator[tuple[str, Any]]:
    """Yield the fields of a package; the project itself is in no lock and in no index.

    Raises:
        ValueError: Another version is installed than is locked.
    """
    version = package.version
    yield "type", "application" if locked is None else "library"
    yield "bom-ref", f"{name}@{version}"
    yield "name", name
    yield "version", version
    yield "licenses", [declared_license(package)]
    if locked is not None:
        if locked.version != version:
            raise ValueError(f"{name} {version} is installed, and {locked.version} is locked")
        yield "hashes", [{"alg": "SHA-256", "content": each} for each in locked.hashes]
        yield "purl", f"pkg:pypi/{name}@{version}"


def declared_license(package: Distribution) -> Mapping[str, Any]:
    """Return the licence that a package declares: an SPDX expression, or the words that it has."""
    metadata = package.metadata
    stated = [metadata[field] for field in ("License-Expression", "License") if field in metadata]
    classifiers = [
        each.rpartition(" :: ")[2]
        for each in metadata.get_all("Classifier") or ()
        if each.startswith("License :: ")
    ]
    words = next(filter(None, stated), ", ".join(classifiers))
    if not words:
        raise ValueError(f"{metadata['Name']} declares no licence")
    try:
        expression = canonicalize_license_expression(words)
    except InvalidLicenseExpression:
        return {"license": {"acknowledgement": "declared", "name": words}}
    if " " in expression:
        return {"acknowledgement": "declared", "expression": expression}
    return {"license": {"acknowledgement": "declared", "id": expression}}


def bill_of_materials(
    installed: Mapping[str, Distribution],
    lock: Mapping[str, LockedPackage],
    left_out: frozenset[str],
    *,
    epoch: str | None = None,
    is_whole: bool = False,
) -> dict[str, Any]:
    """Return the document of CycloneDX; of a whole environment, nothing may be left over.

    Raises:
        ValueError: What is installed is not what is locked.
    """
    graph = dependency_graph(installed, left_out)
    unlocked = sorted(graph.keys() - lock.keys() - {PROJECT})
    if unlocked:
        raise ValueError(f"not in the lock: {', '.join(unlocked)}")
    if is_whole and installed.keys() != graph.keys():
        raise ValueError(f"not needed: {', '.join(sorted(installed.keys() - graph.keys()))}")
    parts = {name: dict(component(name, installed[name], lock.get(name))) for name in sorted(graph)}
    project = parts.pop(PROJECT)
    metadata: dict[str, Any] = {"component": project, "lifecycles": [{"phase": "build"}]}
    if epoch:
        metadata["timestamp"] = datetime.fromtimestamp(int(epoch), UTC).isoformat()
    ref = {name: f"{name}@{installed[name].version}" for name in graph}
    content = {
        "metadata": metadata,
        "components": [*parts.values()],
        "dependencies": [
            {"ref": ref[name], "dependsOn": sorted(ref[each] for each in graph[name])}
            for name in sorted(graph)
        ],
    }
    serial = uuid5(NAMESPACE_URL, json.dumps(content, sort_keys=True))
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        **content,
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/sbom", description=__doc__)
    parser.add_argument(
        "--site",
        type=Path,
        help="site-packages of an environment that has to hold these packages and no others; by"
        " default this Python's, of which only what the image keeps is listed",
    )
    site = parser.parse_args().site
    requirements = ROOT / "requirements"
    try:
        bill = bill_of_materials(
            installed_in(site),
            read_lock((requirements / "runtime.txt").read_text()),
            read_names((requirements / "left-out.txt").read_text()),
            epoch=os.environ.get("SOURCE_DATE_EPOCH"),
            is_whole=site is not None,
        )
    except ValueError as err:
        sys.exit(f"sbom: {err}")
    json.dump(bill, sys.stdout, indent=1, sort_keys=True)
    print()


if __name__ == "__main__":
    main()
