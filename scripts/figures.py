"""What scripts/figures counts: lines, files, folders, parameters, private reads, one bind."""

from __future__ import annotations

import ast
import io
import json
import sys
import tempfile
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import TypeAlias

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.bench import embedded
from webhook.admission.serving.app import create_app
from webhook.fakecluster.manifests.loading import load_cluster
from webhook.fakecluster.storage import FakeClient
from webhook.runtime import Engine, EngineOptions
from webhook.telemetry.metrics import Metrics

ROOT = Path(__file__).resolve().parent.parent
MOST_PARAMETERS = 6
SHORT_LINES = 60
NAMED_TUPLE_METHODS = {"_replace", "_asdict", "_fields"}
"""Public in spite of their names."""


def modules(part: str) -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text()) for path in sorted((ROOT / part).rglob("*.py"))}


def lines(part: str) -> int:
    return sum(len(path.read_text().splitlines()) for path in (ROOT / part).rglob("*.py"))


def fullest_folder(found: dict[Path, ast.Module]) -> tuple[int, str]:
    folders = Counter(path.parent for path in found if path.name != "__init__.py")
    folder, files = folders.most_common(1)[0]
    return files, str(folder.relative_to(ROOT))


def functions(found: dict[Path, ast.Module]) -> Iterator[tuple[str, ast.FunctionDef]]:
    for path, tree in found.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                yield f"{path.relative_to(ROOT)}:{node.lineno} {node.name}", node


def parameters(function: ast.FunctionDef) -> int:
    """Return how many parameters a caller may give, so without `self` and `cls`."""
    taken = function.args
    names = [arg.arg for arg in (*taken.posonlyargs, *taken.args, *taken.kwonlyargs)]
    return len([name for name in names if name not in {"self", "cls"}])


def private_reads(found: dict[Path, ast.Module]) -> list[str]:
    """Return the places where a test reads a private attribute of what is not its own."""
    return [
        f"{path.relative_to(ROOT)}:{node.lineno} {ast.unparse(node)}"
        for path, tree in found.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and node.attr.startswith("_")
        and not node.attr.endswith("__")
        and node.attr not in NAMED_TUPLE_METHODS
        and not (isinstance(node.value, ast.Name) and node.value.id in {"self", "cls"})
        and not (isinstance(node.value, ast.Call) and ast.unparse(node.value) == "super()")
    ]


def fake_clients(found: dict[Path, ast.Module]) -> list[str]:
    """Return the classes that inherit from the fake client, directly or not."""
    families, grown = {"FakeClient"}, True
    classes = [
        (path, node, {ast.unparse(base).rpartition(".")[2] for base in node.bases})
        for path, tree in found.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    ]
    named: dict[str, str] = {}
    while grown:
        grown = False
        for path, node, bases in classes:
            place = f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
            if bases & families and place not in named:
                named[place] = node.name
                families.add(node.name)
                grown = True
    return sorted(named)


def short_modules(found: dict[Path, ast.Module]) -> list[str]:
    """Return modules below `SHORT_LINES` lines that one other module alone imports."""
    importers: Counter[str] = Counter()
    for tree in found.values():
        seen = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                seen |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        importers.update(seen)
    return [
        str(path.relative_to(ROOT))
        for path in found
        if path.name != "__init__.py"
        and len(path.read_text().splitlines()) < SHORT_LINES
        and importers[".".join(path.relative_to(ROOT).with_suffix("").parts)] == 1
    ]


def comment_lines(found: dict[Path, ast.Module]) -> int:
    return sum(
        token.line.lstrip().startswith("#")
        for path in found
        for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline)
        if token.type == tokenize.COMMENT
    )


Entered: TypeAlias = set[tuple[str, str, int]]
"""Functions: file, qualified name and line."""


def bind_entered() -> Entered:
    """Return which of our functions one guarded bind enters."""
    with tempfile.TemporaryDirectory() as scratch:
        snapshot = Path(scratch, "cluster.json")
        embedded.snapshot(snapshot, 3 * embedded.NAMESPACES)
        client = FakeClient(load_cluster([snapshot]))
    engine = Engine(client, Metrics(), EngineOptions())
    engine.start()
    try:
        engine.wait_until_counted(30)
        application = create_app(engine.decide).wsgi_app
        for number in range(2):  # caches are warm afterwards
            _bind(application, number * embedded.NAMESPACES)
        entered: Entered = set()

        def note(frame: FrameType, event: str, _arg: object) -> None:
            code = frame.f_code
            ours = code.co_filename.startswith(str(ROOT / "webhook"))
            if event == "call" and ours and not code.co_name.startswith("<"):
                entered.add((code.co_filename, code.co_qualname, code.co_firstlineno))

        sys.setprofile(note)
        try:
            _bind(application, 2 * embedded.NAMESPACES)
        finally:
            sys.setprofile(None)
    finally:
        engine.stop()
    return entered


def without_fake_cluster(entered: Entered) -> Entered:
    """Return what a bind on a real API server enters, beside the client's own modules."""
    fake = str(ROOT / "webhook" / "fakecluster")
    return {one for one in entered if not one[0].startswith(fake)}


def _bind(application: object, number: int) -> None:
    request = embedded.review("ns-0", f"pod-{number}")
    body = request.partition(b"\r\n\r\n")[2]
    environ = {
        "REQUEST_METHOD": "POST",
        "PATH_INFO": "/validate",
        "QUERY_STRING": "timeout=5s",
        "CONTENT_TYPE": "application/json",
        "CONTENT_LENGTH": str(len(body)),
        "wsgi.input": io.BytesIO(body),
    }
    answer = b"".join(application(environ, lambda *_: None))  # type: ignore[operator]
    assert json.loads(answer)["response"]["allowed"], answer


def main() -> None:
    source, tests = modules("webhook"), modules("tests")
    files, folder = fullest_folder(source)
    commands = {"webhook/cli"}
    many = [
        place
        for place, function in functions(source)
        if parameters(function) > MOST_PARAMETERS
        and not any(place.startswith(part) for part in commands)
    ]
    entered = bind_entered()
    handled = without_fake_cluster(entered)
    rows: list[tuple[str, object]] = [
        ("lines of webhook/", lines("webhook")),
        ("lines of tests/", lines("tests")),
        ("files of webhook/", len(source)),
        (f"files of the fullest folder, {folder}", files),
        (f"files below {SHORT_LINES} lines with one importer", len(short_modules(source))),
        ("lines of comments alone", comment_lines(source)),
        ("files that one bind enters", len({file for file, _, _ in entered})),
        ("functions that one bind enters", len(entered)),
        ("files of that, without the fake API server", len({file for file, _, _ in handled})),
        ("functions of that, without the fake API server", len(handled)),
        (f"functions of more than {MOST_PARAMETERS} parameters, without commands", len(many)),
        ("reads of private attributes by tests", len(private_reads(tests))),
        ("subclasses of the fake client in tests", len(fake_clients(tests))),
    ]
    for name, value in rows:
        print(f"{name:<60}{value:>9}")
    if "--list" in sys.argv:
        print("\n".join(["", *short_modules(source), "", *many, "", *private_reads(tests)]))
        print("\n".join(["", *fake_clients(tests)]))


if __name__ == "__main__":
    main()
