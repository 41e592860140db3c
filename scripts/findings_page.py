"""What scripts/docs writes of docs/findings.md: findings by id, from the calls that make them."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import CodeType, FunctionType, ModuleType

from source_texts import OPERATIONS, around, either, texts, tree, values_of

from webhook.operations.doctor.runner import CHECKS, Check
from webhook.operations.findings import Severity, error

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "findings.md"
MARK = "<!-- From here on written by scripts/docs from the code; do not edit. -->\n"

_ID = re.compile(r"[a-z]+(-[a-z]+)*\.[a-z]+(-[a-z]+)*")
_SEVERITIES = {"error": Severity.ERROR, "warning": Severity.WARN, "information": Severity.INFO}
_PASSED = {
    "check.forbidden": {Severity.WARN, Severity.INFO},
    "webhooks.ca": {Severity.ERROR, Severity.WARN},
}
"""Severities that come with what the finding is made of."""
_SEVERAL = "several checks"
_ENABLE = "`deferred-quota enable`, with `--dry-run` too"


@dataclass(frozen=True, slots=True)
class Case:
    """A call that makes a finding."""

    id: str
    checks: tuple[str, ...]
    """Titles of the checks that come to it; none where `enable` does."""
    severities: tuple[Severity, ...]
    messages: tuple[str, ...]
    remedies: tuple[str, ...]


def cases() -> list[Case]:
    """Return all calls that make a finding, by ids."""
    reached = {check.title: _reached(check) for check in CHECKS}
    found: list[Case] = []
    for path in (ROOT / "webhook" / "operations").rglob("*.py"):
        if "operations.findings import" in path.read_text():
            module = import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
            for call in ast.walk(tree(module)):
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.args[2:]:
                    found += _cases(call, call.func, module, reached)
    return sorted(found, key=lambda case: (case.id, case.severities, case.messages))


def _cases(
    call: ast.Call, maker: ast.Name, module: ModuleType, reached: Mapping[str, set[str]]
) -> Iterator[Case]:
    ids = [text for text in texts(call.args[0]) if _ID.fullmatch(text)]
    assert ids or maker.id not in _SEVERITIES, ast.unparse(call)
    if not ids:
        return
    functions = [each.name for each in around(call) if isinstance(each, ast.FunctionDef)]
    place = f"{module.__name__}.{functions[-1] if functions else ''}"
    checks = [title for title, functions in reached.items() if place in functions]
    beside = [check.title for check in CHECKS if check.run.__module__ == module.__name__]
    given = inspect.signature(vars(module).get(maker.id, error)).bind(*call.args).arguments
    messages = texts(given["message"] if "message" in given else given["meaning"])
    about = "WHO " if "meaning" in given else ""
    if not isinstance(given.get("subject", call.args[0]), ast.Constant):
        about = f"{either(texts(given['subject']))}: "
    remedies = tuple(filter(None, texts(given["remedy"]))) if "remedy" in given else ()
    severities = _severities(given.get("severity", maker))
    for id_ in ids:
        order = sorted(severities or _PASSED[id_], key=list(Severity).index)
        said = tuple(about + message for message in messages)
        yield Case(id_, tuple(checks or beside), tuple(order), said, remedies)


def _severities(node: ast.AST) -> set[Severity]:
    match node:
        case ast.Attribute(value=ast.Name(id="Severity"), attr=name):
            return {Severity[name]}
        case ast.Name(id=name) if name in _SEVERITIES:
            return {_SEVERITIES[name]}
        case ast.Name():
            return set[Severity]().union(*map(_severities, values_of(node)))
        case ast.IfExp(body=one, orelse=other):
            return _severities(one) | _severities(other)
    return set()


def _reached(check: Check) -> set[str]:
    """Return the functions that a check calls, and those that these call."""
    found: dict[FunctionType, None] = {}
    todo: list[object] = [check.run]
    while todo:
        each = todo.pop()
        if isinstance(each, Mapping):
            todo += each.values()
        elif isinstance(each, FunctionType) and each not in found:
            found[each] = None
            names = set(_names(each.__code__)) if each.__module__.startswith(OPERATIONS) else set()
            for name, value in ((name, each.__globals__.get(name)) for name in names):
                is_module = isinstance(value, ModuleType)
                todo += [vars(value).get(of) for of in names - {name}] if is_module else [value]
    return {f"{each.__module__}.{each.__qualname__.partition('.')[0]}" for each in found}


def _names(code: CodeType) -> set[str]:
    inside = (each for each in code.co_consts if isinstance(each, CodeType))
    return {*code.co_names}.union(*map(_names, inside))


def page() -> str:
    """Return the whole document: as it stands up to the mark, and a section for each check."""
    sections: dict[str, list[str]] = {}
    every = cases()
    for id_ in dict.fromkeys(case.id for case in every):
        own = [case for case in every if case.id == id_]
        checks = sorted({check for case in own for check in case.checks})
        title = _SEVERAL if checks[1:] else checks[0] if checks else _ENABLE
        lines = dict.fromkeys(line for case in own for line in _lines(case))
        sections.setdefault(title, []).extend((f"### `{id_}`", "", *lines, ""))
    order = [*(check.title for check in CHECKS), _SEVERAL, _ENABLE]
    text = [PAGE.read_text().partition(MARK)[0] + MARK]
    for title in sorted(sections, key=order.index):
        text += [f"## {title[0].upper()}{title[1:]}", "", *sections[title]]
    return "\n".join(text).rstrip() + "\n"


def _lines(case: Case) -> Iterator[str]:
    remedies = " *Or:* ".join(dict.fromkeys(case.remedies))
    for message in case.messages:
        yield f"- **{', '.join(case.severities)}** {message}" + (remedies and f". *Do:* {remedies}")


if __name__ == "__main__":
    PAGE.write_text(page())
    print(PAGE)
