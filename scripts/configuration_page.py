"""What scripts/docs writes: docs/configuration.md, from the dataclasses of the settings."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import textwrap
from collections.abc import Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from types import ModuleType
from typing import get_args, get_type_hints

from webhook.config import Configuration, JobFeatureGates, load_configuration

PAGE = Path(__file__).resolve().parent.parent / "docs" / "configuration.md"

WIDTH = 100

EXAMPLE = """\
apiVersion: deferredquota.io/v1alpha1
kind: Configuration
deferredResources: [requests.nvidia.com/gpu]   # charged at the bind like cpu and memory
requireQuotaForPriority:                       # pods of a priority class need a quota for it
- {scopeName: PriorityClass, operator: Exists}
queue: {order: BestEffortFIFO, maxOvertakes: 20}
jobs:                                          # the first rule that selects a Job decides
- {growth: WithinQuota, unsuspend: Warn}
exemptNamespaces: [kube-system, kube-public, kube-node-lease]
"""

HEAD = """\
# Configuration

<!-- Written by scripts/docs from webhook/config/; do not edit. -->

`serve`, `controller` and `review` take `--config FILE`; `scripts/install --config FILE` installs
it as a ConfigMap. Every field is optional, an unknown one is an error with its path, and a
changed file takes effect without a restart, except where noted. What happens to a file that
cannot be used is in [operating.md](operating.md).
"""


def field_docstrings(kind: type) -> dict[str, str]:
    """Return name of the field or member → its docstring, on one line."""
    module = inspect.getmodule(kind)
    assert isinstance(module, ModuleType)
    for node in ast.parse(inspect.getsource(module)).body:
        if isinstance(node, ast.ClassDef) and node.name == kind.__name__:
            return dict(_documented(node.body))
    raise LookupError(kind)


def _documented(body: list[ast.stmt]) -> Iterable[tuple[str, str]]:
    for statement, following in zip(body, [*body[1:], ast.Pass()], strict=True):
        match statement:
            case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
                match following:
                    case ast.Expr(value=ast.Constant(value=str(text))):
                        yield name, " ".join(text.split())
                    case _:
                        yield name, ""


def shown(value: object) -> str:
    """Return a default as it would stand in the file."""
    match value:
        case bool():
            return str(value).lower()
        case StrEnum() | int():
            return str(value)
        case frozenset() | tuple():
            return f"[{', '.join(sorted(map(str, value)))}]"
        case Mapping():
            return ", ".join(f"{key}: {one}" for key, one in value.items())
    return ""


def enums(hint: object) -> list[type[StrEnum]]:
    """Return the enumerations that a type names, itself included."""
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return [hint]
    return [enum for part in get_args(hint) for enum in enums(part)]


def section(kind: type, path: str, level: str) -> list[str]:
    """Return the lines about the fields of one dataclass."""
    texts, hints, lines = field_docstrings(kind), get_type_hints(kind), []
    for field in dataclasses.fields(kind):
        hint = hints[field.name]
        key, about = re.fullmatch(r"`([^`]+)`[,:]? ?(.*)", texts[field.name]).groups()  # type: ignore[union-attr]
        name = key if key.startswith(path) else f"{path}{key}"
        nested = [one for one in (hint, *get_args(hint)) if dataclasses.is_dataclass(one)]
        default = field.default_factory() if callable(field.default_factory) else field.default
        if nested and isinstance(nested[0], type):
            prefix = f"{name}[]." if isinstance(default, tuple) else f"{name}."
            text = about or inspect.getdoc(nested[0]) or ""
            lines += [f"{level} `{name}`", "", _sentence(text), ""]
            lines += section(nested[0], prefix, f"{level}#")
            continue
        value = "Auto" if kind is JobFeatureGates else shown(default)
        lines += [f"{level} `{name}`" + (f" (default `{value}`)" if value else ""), ""]
        lines += [_sentence(about), ""]
        for enum in enums(hint):
            meanings = field_docstrings(enum)
            named = {str(member): meanings[member.name] for member in enum}
            lines += [
                _item(f"`{name}`: {about}" if about else f"`{name}`")
                for name, about in named.items()
            ]
            lines.append("")
    return lines


def _sentence(text: str) -> str:
    text = " ".join(text.split())
    return textwrap.fill(text[:1].upper() + text[1:], WIDTH, break_on_hyphens=False)


def _item(text: str) -> str:
    return textwrap.fill(f"- {text}", WIDTH, subsequent_indent="  ", break_on_hyphens=False)


def page() -> str:
    """Return the whole document."""
    load_configuration(EXAMPLE, "the example")  # it has to be one that can be used
    lines = [HEAD, "```yaml", EXAMPLE.rstrip(), "```", "", *section(Configuration, "", "##")]
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
    print(PAGE)
