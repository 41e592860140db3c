"""The plugin for krew: an archive, and the manifest that names it by its hash.

krew chooses an archive by system and processor alone, and compiled packages are for one version of
Python. So the archive holds the wheel, the lock of what it needs, and a program that installs both
at the first call, by the Python of the machine. The same wheel and lock give the same bytes.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import re
import sys
import tarfile
from pathlib import Path
from typing import Any, Final

import yaml
from packaging.utils import parse_wheel_filename

ROOT: Final = Path(__file__).parent.parent
NAME: Final = "deferred-quota"
PROGRAM: Final = "kubectl-deferred_quota"
"""As krew calls its link: a dash of the name becomes an underscore."""
_DESCRIPTION: Final = """\
Shows what quotas that are charged at the bind have used, reserved and pending, says why a pod waits
and what would unblock it, opts namespaces in and out, checks manifests against quotas, and examines
an installation of deferred-quota.
"""
_CAVEATS: Final = """\
Needs Python 3.11 or newer with its venv module. The first call installs the packages of this
release from the Python package index, each by its hash, beside the plugin; krew removes them with
it.
"""


def archive_of(wheel: Path) -> bytes:
    """Return the archive that krew unpacks."""
    files = {
        PROGRAM: (ROOT / "scripts/krew_launcher", 0o755),
        "LICENSE": (ROOT / "LICENSE", 0o644),
        "requirements.txt": (ROOT / "requirements/runtime.txt", 0o644),
        wheel.name: (wheel, 0o644),
    }
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, (path, mode) in files.items():
            data = path.read_bytes()
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(data), mode
            archive.addfile(member, io.BytesIO(data))
    return gzip.compress(packed.getvalue(), mtime=0)


def manifest_of(version: str, homepage: str, uri: str, archive: bytes) -> dict[str, Any]:
    """Return the manifest, as an index of krew has it."""
    return {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": NAME},
        "spec": {
            "version": f"v{version}",
            "homepage": homepage,
            "shortDescription": "Quotas that are charged at the bind",
            "description": _DESCRIPTION,
            "caveats": _CAVEATS,
            "platforms": [
                {
                    "selector": {"matchLabels": {"os": "linux"}},
                    "uri": uri,
                    "sha256": hashlib.sha256(archive).hexdigest(),
                    "bin": PROGRAM,
                }
            ],
        },
    }


def main() -> None:
    """Write both beside the wheel."""
    parser = argparse.ArgumentParser(prog="scripts/krew", description=__doc__)
    parser.add_argument("wheel", type=Path, help="as it is released")
    parser.add_argument("homepage", help="URL of the project")
    parser.add_argument("files", help="URL under which the files of the release can be downloaded")
    given = parser.parse_args()
    version = str(parse_wheel_filename(given.wheel.name)[1])
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        sys.exit(f"krew: {version}: krew takes versions X.Y.Z")
    archive = archive_of(given.wheel)
    path = given.wheel.with_name(f"{PROGRAM}-{version}.tar.gz")
    manifest = manifest_of(version, given.homepage, f"{given.files}/{path.name}", archive)
    path.write_bytes(archive)
    given.wheel.with_name(f"{NAME}.yaml").write_text(yaml.safe_dump(manifest, sort_keys=False))


if __name__ == "__main__":
    main()
