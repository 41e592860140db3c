"""One target under atheris: `python -m tests.fuzz.run TARGET [libFuzzer options]`.

libFuzzer stops at the first input that fails, writes it to a file `crash-...` and ends with an
error. Such an input belongs into `corpus/TARGET/`, as a file `.bin`.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import atheris

with atheris.instrument_imports(include=["webhook"]):
    from tests.fuzz.seeds import seeds_of
    from tests.fuzz.targets import TARGETS


def main() -> None:
    """Run one target from its seeds."""
    name, *options = sys.argv[1:]
    logging.disable(logging.CRITICAL)
    with TemporaryDirectory() as directory:
        for number, seed in enumerate(seeds_of(name)):
            (Path(directory) / str(number)).write_bytes(seed)
        atheris.Setup([sys.argv[0], *options, directory], TARGETS[name])
        atheris.Fuzz()


if __name__ == "__main__":
    main()
