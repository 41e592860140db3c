"""What scripts/docs writes of docs/logs.md: every message, from calls of loggers in the code."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "logs.md"

LEVELS = {
    "debug": "debug",
    "info": "info",
    "warning": "warning",
    "error": "error",
    "exception": "error",
    "log": "info, warning",
}

FIELDS = {
    "about": "the object that an event is about",
    "client": "address of a client",
    "code": "HTTP status of the API server; 0 where it gave no answer",
    "controller": "the control loop",
    "count": "how many",
    "detail": "the reason, as a sentence",
    "drift": "by how much a count was wrong",
    "epoch": "number of a leadership; a later one is higher",
    "error": "what the API server or a parser said",
    "fields": "fields of the configuration, and what each waits for",
    "key": "namespace/name",
    "kind": "kind of object",
    "label": "name of a label",
    "lease": "namespace/name of the Lease",
    "names": "names by which the API server calls the webhook",
    "namespace": "namespace",
    "not_after": "when the certificate ends",
    "pacing": "value of the former field",
    "path": "file, or the Secret",
    "pod": "name of a pod, or namespace/name",
    "pods": "names of pods",
    "problems": "what is wrong with certificates",
    "quota": "a quota: namespace/name, or the name of one that namespaces share",
    "quotas": "names of quotas",
    "reason": "the reason in a word: the label of the same name of the metric that counts it",
    "released": "pods that quota was reserved for",
    "requeued": "pods that the scheduler was made to try again",
    "rounds": "the thread",
    "source": "the file",
    "uid": "the registration's; `none` where there is none",
    "value": "value of a label",
    "waiting": "pods that wait",
    "what": "what was written",
    "why": "the reason, as a sentence",
}

MARK = "<!-- From here on written by scripts/docs from the code; do not edit. -->\n"


@dataclass(frozen=True, order=True, slots=True)
class Line:
    """A call of a logger."""

    message: str
    level: str
    logger: str
    fields: tuple[str, ...]


def lines() -> list[Line]:
    """Return all messages of the product, in alphabetical order."""
    return sorted(
        {
            line
            for path in sorted((ROOT / "webhook").rglob("*.py"))
            if "fakecluster" not in path.parts
            for line in _lines_of(path)
        }
    )


def _lines_of(path: Path) -> Iterator[Line]:
    logger = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id="log" | "_log"), attr=method), args=arguments
            ) if method in LEVELS:
                texts = [one.value for one in arguments if isinstance(one, ast.Constant)]
                for text in texts:
                    yield Line(str(text), LEVELS[method], logger, tuple(_fields_of(node)))


def _fields_of(call: ast.Call) -> Iterator[str]:
    for keyword in call.keywords:
        if keyword.arg == "extra" and isinstance(keyword.value, ast.Dict):
            for key in keyword.value.keys:
                if isinstance(key, ast.Constant):
                    yield str(key.value)


def page() -> str:
    """Return the whole document: as it stands up to the mark, and the tables."""
    text = [
        PAGE.read_text().partition(MARK)[0] + MARK,
        "## Fields",
        "",
        "| field | meaning |",
        "| --- | --- |",
    ]
    text += [f"| `{name}` | {meaning} |" for name, meaning in FIELDS.items()]
    text += ["", "## Messages", "", "| message | level | fields | logger |"]
    text += ["| --- | --- | --- | --- |"]
    for line in lines():
        fields = ", ".join(f"`{field}`" for field in line.fields)
        text.append(f"| {line.message} | {line.level} | {fields} | `{line.logger}` |")
    return "\n".join(text) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
    print(PAGE)
