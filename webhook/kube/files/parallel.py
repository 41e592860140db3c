"""Large inputs read by two processes: most of their time goes into the parser.

What is read, and what is wrong with it, is the same as when one process reads it. A file is only
cut in front of a line that begins with `---`, which begins a document wherever it stands.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from webhook.kube.files.aside import LARGE_BYTES, can_fork
from webhook.kube.files.documents import Document, SnapshotError, read_documents

Read: TypeAlias = tuple[Document, ...] | SnapshotError
"""The documents of a file, or why it cannot be read."""

_OWN_SHARE: Final = 0.55
"""Part of the bytes that this process reads itself: what the other one reads has to be copied."""
_BORDER: Final = b"\n---"
_DIRECTIVE: Final = b"\n%"


@dataclass(frozen=True, slots=True)
class _Part:
    """Some whole documents of a file."""

    index: int
    """Which of the files."""
    file: str
    data: bytes
    line: int = 0
    """How many lines come before it."""


def read_files(files: Sequence[tuple[str, bytes]]) -> Iterator[Read]:
    """Yield what each file holds, in their order.

    Args:
        files: Name and content.
    """
    size = sum(len(data) for _, data in files)
    if size < LARGE_BYTES or not can_fork():
        yield from (_read_file(name, data) for name, data in files)
        return
    own, other = _shared_out(files, int(size * _OWN_SHARE))
    fork = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(max_workers=1, mp_context=fork) as executor:
        future = executor.submit(_read_parts, other)
        read = [*_read_parts(own), *future.result()]
    for index, (name, data) in enumerate(files):
        parts = [documents for at, documents in read if at == index]
        yield _read_file(name, data) if None in parts else tuple(_joined(parts))


def _read_file(name: str, data: bytes) -> Read:
    try:
        return read_documents(name, data)
    except SnapshotError as err:
        return err


def _shared_out(files: Sequence[tuple[str, bytes]], share: int) -> tuple[list[_Part], list[_Part]]:
    """Share files out to two readers; `share` are the bytes of the first."""
    own: list[_Part] = []
    other: list[_Part] = []
    for index, (name, data) in enumerate(files):
        if share <= 0:
            other.append(_Part(index, name, data))
            continue
        cut = _border(data, share) if len(data) > share else len(data)
        share -= len(data)
        own.append(_Part(index, name, data[:cut]))
        if cut < len(data):
            other.append(_Part(index, name, data[cut:], data.count(b"\n", 0, cut)))
    return own, other


def _border(data: bytes, near: int) -> int:
    """Return where a document begins near a place; the end of the file if it is not to be cut."""
    is_json = data.lstrip()[:1] in {b"{", b"["}
    found = -1 if is_json or _DIRECTIVE in data else data.find(_BORDER, near)
    return len(data) if found < 0 else found + 1


def _read_parts(parts: Sequence[_Part]) -> list[tuple[int, tuple[Document, ...] | None]]:
    """Read parts; None for one that cannot be read: its whole file is then read again."""
    return [(part.index, _read_part(part)) for part in parts]


def _read_part(part: _Part) -> tuple[Document, ...] | None:
    try:
        documents = read_documents(part.file, part.data)
    except SnapshotError:
        return None
    if not part.line:
        return documents
    return tuple(
        replace(one, lines={path: line + part.line for path, line in one.lines.items()})
        for one in documents
    )


def _joined(parts: Sequence[tuple[Document, ...] | None]) -> Iterator[Document]:
    """Yield the documents of one file with their numbers in it."""
    before = 0
    for documents in parts:
        for one in documents or ():
            yield replace(one, number=one.number + before) if before else one
        before += len(documents or ())
