"""Manifests named by `-f`: files, directories and standard input, in the order of kubectl.

- A file is read whatever its name; in a directory the files that end in .yaml, .yml or .json are,
  by name. `-R` goes into directories below, each at its place among the names; symbolic links to
  directories are not followed there.
- A name that does not exist may be a pattern, such as 'deploy/*.yaml'.
- `-` is standard input, once.
"""

from __future__ import annotations

import glob
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TypeAlias, TypeVar

from webhook.cli.exit_codes import InputError
from webhook.jsonfields.fields import InvalidFieldError
from webhook.kube.files.documents import Document, SnapshotError, flatten_lists
from webhook.kube.files.parallel import read_files
from webhook.kube.files.positions import located

_T = TypeVar("_T")

Content: TypeAlias = tuple[str, bytes | SnapshotError]
"""Name of a file, and what is in it, or why it cannot be read."""

STDIN = "-"
_SUFFIXES = frozenset({".json", ".yaml", ".yml"})


@dataclass(frozen=True, slots=True)
class Manifest:
    """One object of the input."""

    document: Document
    field: str
    """YAML path of the object in its document: `items[3]` in a list, otherwise empty."""
    object: Mapping[str, object]


def read_manifests(
    filenames: Sequence[str], read: Callable[[Manifest], _T], *, recursive: bool
) -> tuple[_T, ...]:
    """Read all objects that the values of `-f` stand for; lists are taken apart.

    Args:
        filenames: Values of `-f`.
        read: Called for every object; what it returns is collected. It may raise
            InvalidFieldError, whose field is a path in the document.
        recursive: Whether directories below directories are read.

    Raises:
        InputError: Anything cannot be found, read or understood. Every object with such a
            problem is named, with file, document, line and field.
    """
    contents = list(input_files(filenames, recursive=recursive))
    found, problems = read_objects(contents, read)
    if problems:
        raise InputError([str(_located(problem, dict(contents))) for problem in problems])
    return tuple(found)


def _located(
    problem: SnapshotError, contents: Mapping[str, bytes | SnapshotError]
) -> SnapshotError:
    data = contents.get(problem.file)
    return located(problem, data) if isinstance(data, bytes) else problem


def input_files(filenames: Sequence[str], *, recursive: bool) -> Iterator[Content]:
    """Yield the files that the values of `-f` stand for, or why one cannot be read.

    Raises:
        InputError: There is none, or one cannot be found or listed; all such are named.
    """
    for name in manifest_files(filenames, recursive=recursive):
        try:
            yield name, read_input(name)
        except InputError as err:
            yield name, SnapshotError(name, str(err).removeprefix(f"{name}: "))


def read_objects(
    contents: Iterable[Content], read: Callable[[Manifest], _T]
) -> tuple[list[_T], list[SnapshotError]]:
    """Read all objects of some files; what cannot be read does not hinder the others.

    Args:
        contents: The files, or why one cannot be read.
        read: As in `read_manifests`.
    """
    found: list[_T] = []
    problems: list[SnapshotError] = []
    files: list[tuple[str, bytes]] = []
    for name, data in contents:
        if isinstance(data, SnapshotError):
            problems.append(data)
        else:
            files.append((name, data))
    for documents in read_files(files):
        if isinstance(documents, SnapshotError):
            problems.append(documents)
        else:
            for document in documents:
                _read_document(document, read, found, problems)
    return found, problems


def _read_document(
    document: Document,
    read: Callable[[Manifest], _T],
    found: list[_T],
    problems: list[SnapshotError],
) -> None:
    try:
        for field, raw in flatten_lists(document, problems):
            try:
                found.append(read(Manifest(document, field, raw)))
            except InvalidFieldError as err:
                problems.append(document.error(err.detail, field=err.field))
    except SnapshotError as err:
        problems.append(err)


def manifest_files(filenames: Sequence[str], *, recursive: bool) -> tuple[str, ...]:
    """Return the files that the values of `-f` stand for; `-` stays as it is.

    Raises:
        InputError: There is none, or one cannot be found or listed; all such are named.
    """
    if not filenames:
        raise InputError("nothing to read: give manifests with -f FILE, -f DIR or -f -")
    problems = ["-f -: standard input can be read only once"] * (filenames.count(STDIN) > 1)
    found: list[str] = []
    for name in filenames:
        try:
            found.extend(_files(name, recursive=recursive))
        except OSError as err:
            problems.append(f"{err.filename or name}: {err.strerror}")
        except _NothingThereError as err:
            problems.append(f"{name}: {err}")
    if problems:
        raise InputError(problems)
    return tuple(found)


def read_input(name: str) -> bytes:
    """Return the content of a file, or of standard input for `-`.

    Raises:
        InputError: It cannot be read.
    """
    try:
        return stdin().read() if name == STDIN else Path(name).read_bytes()
    except OSError as err:
        raise InputError(f"{name}: {err.strerror}") from err


def stdin() -> IO[bytes]:
    """Return standard input as bytes.

    Raises:
        InputError: The process was started without one.
    """
    stream: IO[str] | None = sys.stdin
    if stream is None:
        raise InputError("-: standard input is closed")
    return sys.stdin.buffer


class _NothingThereError(Exception):
    pass


def _files(name: str, *, recursive: bool) -> Iterable[str]:
    if name == STDIN:
        return (name,)
    if name.startswith(("http://", "https://")):
        raise _NothingThereError("URLs are not supported; download it and use -f -")
    files = [
        str(file)
        for path in _existing(name)
        for file in (_walk(path, recursive=recursive) if path.is_dir() else (path,))
    ]
    if not files:
        detail = "has no file that ends in .json, .yaml or .yml"
        with suppress(OSError):  # nothing was asked of the directories below it
            if any(True for path in _existing(name) for _ in _walk(path, recursive=True)):
                detail += "; use -R to read its subdirectories"
        raise _NothingThereError(detail)
    return files


def _existing(name: str) -> Sequence[Path]:
    if Path(name).exists():
        return (Path(name),)
    matches = sorted(glob.glob(name))  # noqa: PTH207 - takes an absolute pattern too
    if not matches:
        raise _NothingThereError("no such file or directory")
    return tuple(map(Path, matches))


def _walk(root: Path, *, recursive: bool) -> Iterator[Path]:
    waiting = _by_name(root)
    while waiting:
        entry = waiting.pop()
        if entry.is_dir() and not entry.is_symlink():
            waiting.extend(_by_name(entry) if recursive else ())
        elif entry.suffix in _SUFFIXES:
            yield entry


def _by_name(folder: Path) -> list[Path]:
    """Return the entries of a directory, the first name last: as a stack takes them."""
    return sorted(folder.iterdir(), key=lambda path: path.name, reverse=True)
