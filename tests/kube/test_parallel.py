"""Files read by two processes are read as by one."""

from __future__ import annotations

import pytest

from webhook.kube.files import parallel
from webhook.kube.files.documents import SnapshotError, read_documents
from webhook.kube.files.parallel import Read, read_files

FILES = {
    "many documents": b"".join(b"kind: A\nvalue: %d\n---\n" % number for number in range(200)),
    "empty documents": b"---\n---\n# a comment\n---\na: 1\n---\n...\n---\nb: 2\n" * 20,
    "a block with dashes": b"a: |\n  ---\n  x\n---\nb: 1\n" * 40,
    "windows": b"a: 1\r\n---\r\nb: 2\r\n---\r\n" * 40,
    "directives": b"%YAML 1.1\n---\na: 1\n...\n%YAML 1.1\n---\nb: 2\n" * 20,
    "json": b'{"a": "x\\n---\\ny"}\n' * 50,
    "nothing": b"",
    "a mark at the front": "\ufeffa: ü\n---\nb: 1\n".encode(),
    "broken": b"a: 1\n---\n" * 50 + b"b: [\n",
    "broken first": b"a: 1\n\tb: 2\n---\n" + b"a: 1\n---\n" * 50,
    "not text": b"a: 1\n---\n" * 50 + b"a: \xff\n",
}


@pytest.fixture(autouse=True)
def _large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count every input as large."""
    monkeypatch.setattr(parallel, "LARGE_BYTES", 0)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("beside", [b"", b"z: 1\n" * 400])
def test_the_same_is_read(name: str, beside: bytes) -> None:
    files = [(name, FILES[name]), ("beside", beside.replace(b"z: 1\n" * 2, b"z: 1\n---\n"))]
    expected = [_read(file, data) for file, data in files]
    assert list(map(_comparable, read_files(files))) == list(map(_comparable, expected))


def _read(file: str, data: bytes) -> Read:
    try:
        return read_documents(file, data)
    except SnapshotError as err:
        return err


def _comparable(read: Read) -> object:
    return (
        (str(read), read.place.line, read.place.column) if isinstance(read, SnapshotError) else read
    )
