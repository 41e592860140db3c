"""Files that others read while they are written."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def write_file(path: Path, data: bytes, *, mode: int | None = None) -> None:
    """Write a file so that a reader sees all of it or the old one.

    Args:
        mode: The permissions; None are those of any new file of the process.

    Raises:
        OSError: The directory is missing or cannot be written; its `filename` is `path`.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.unlink(missing_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        descriptor = os.open(part, flags, 0o666 if mode is None else mode)
        with os.fdopen(descriptor, "wb") as file:
            if mode is not None:
                os.fchmod(descriptor, mode)  # whatever the umask left of it
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        part.replace(path)
    except OSError as err:
        # a write does not say to which file, and the name of the part is not known
        raise OSError(err.errno, err.strerror or str(err), str(path)) from err
    finally:  # an interrupted one leaves nothing either
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
