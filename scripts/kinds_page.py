"""What scripts/docs writes of docs/kinds.md: the fields of our kinds, from their definitions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "kinds.md"
DEFINITIONS = ROOT / "manifests" / "base" / "cluster"

HEAD = """\
# Kinds

<!-- Written by scripts/docs from manifests/base/cluster; do not edit. -->

What `kubectl explain` says of them in a cluster. `[]` is each item of a list, `*` each value of a
map. Rules are CEL; the API server refuses an object that breaks one, with its message. Amounts of
elastic quotas it does not compare: `min` above `max`, and `lendable` above `min`, are refused by
the webhook, in namespaces that have opted in ([elastic quotas](elastic-quotas.md)).
"""

Schema = Mapping[str, Any]


def page() -> str:
    """Return the whole document."""
    lines = [HEAD]
    for definition in definitions():
        lines += _kind(definition)
    return "\n".join(lines).rstrip() + "\n"


def definitions() -> Sequence[Schema]:
    """Return the CustomResourceDefinitions that are installed, by the name of their file."""
    found = (yaml.safe_load(each.read_text()) for each in sorted(DEFINITIONS.glob("*s.yaml")))
    return [each for each in found if each.get("kind") == "CustomResourceDefinition"]


def _kind(definition: Schema) -> Iterator[str]:
    spec = definition["spec"]
    names = spec["names"]
    for version in spec["versions"]:
        schema = version["schema"]["openAPIV3Schema"]
        short = ", ".join(f"`{name}`" for name in names.get("shortNames", ()))
        yield f"## {names['kind']}"
        yield ""
        yield (
            f"`{spec['group']}/{version['name']}`, {spec['scope'].lower()},"
            f" `{names['plural']}`{f' ({short})' if short else ''}. {_line(schema)}".rstrip()
        )
        yield from ("", "| field | type | meaning |", "| --- | --- | --- |")
        for part in ("spec", "status"):
            if part in schema["properties"]:
                yield from _fields(schema["properties"][part], part, schema.get("required", ()))
        yield ""


def _fields(schema: Schema, path: str, required: Sequence[str]) -> Iterator[str]:
    """Return a row for a field, and for all that are in it."""
    yield f"| `{path}` | {_type(schema)} | {_meaning(schema, path, required)} |"
    for name, below in schema.get("properties", {}).items():
        yield from _fields(below, f"{path}.{name}", schema.get("required", ()))
    for step, below in (("[]", schema.get("items")), (".*", schema.get("additionalProperties"))):
        if isinstance(below, Mapping) and (below.get("properties") or below.get("description")):
            yield from _fields(below, f"{path}{step}", ())


def _type(schema: Schema) -> str:
    if schema.get("x-kubernetes-int-or-string"):
        return "quantity or integer"
    kind = str(schema.get("type", "any"))
    below = schema.get("items") or schema.get("additionalProperties")
    if isinstance(below, Mapping):
        return f"{'list' if kind == 'array' else 'map'} of {_type(below)}"
    return " or ".join(f"`{each}`" for each in schema["enum"]) if "enum" in schema else kind


def _meaning(schema: Schema, path: str, required: Sequence[str]) -> str:
    name = path.rpartition(".")[2]
    said = [_line(schema)] if _line(schema) else []
    if name in required:
        said.insert(0, "Required.")
    if "default" in schema:
        said.append(f"Default: `{schema['default']}`.")
    said += [f"Rule: {_cell(each['message'])}." for each in _rules(schema)]
    return " ".join(said)


def _rules(schema: Schema) -> Sequence[Mapping[str, str]]:
    return [each for each in schema.get("x-kubernetes-validations", ()) if each.get("message")]


def _line(schema: Schema) -> str:
    return _cell(" ".join(str(schema.get("description", "")).split()))


def _cell(text: str) -> str:
    return text.rstrip(".").replace("|", "\\|") + ("." if text.endswith(".") else "")


if __name__ == "__main__":
    PAGE.write_text(page())
    print(PAGE)
