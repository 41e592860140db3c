"""Texts that an expression of the code can be, read from its source, for pages about them."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterable
from functools import cache
from importlib import import_module
from itertools import pairwise
from types import FunctionType, ModuleType

OPERATIONS = "webhook.operations"
WORDS = {
    "AMOUNTS": "render told",
    "CHECK": "title",
    "CONSEQUENCE": "_consequences _without consequence loss without",
    "FIELD": "fieldref",
    "KEYS": "key keys ours unmasked uncharged",
    "LIMITS": "pool",
    "MODE": "default sample",
    "NAME": "item object_name service serviceaccountname",
    "NAMES": "asking close edited entries left_out missing reaching which",
    "NAMESPACE": "opted_in where",
    "NODE": "info",
    "NUMBER": "availablereplicas count expire_seconds len replicas seconds updatedreplicas",
    "OBJECT": "next subject subject_of",
    "PATH": "path wanted",
    "PATHS": "paths",
    "POD": "host",
    "QUOTA": "differing observed",
    "REASON": "decided err fault faults found message note problem refusals rejected warning words",
    "RESOURCES": "above idle",
    "TIME": "begin end moment renewed since time_text",
    "TYPE": "fields type",
    "URL": "asked_at",
    "VALUE": "failurepolicy value",
    "WEBHOOK": "entry silent",
}
"""What stands for a value that only a cluster has → its names in the code; else it is the name."""

_OTHERS = r"(?:__name__|_denied|integer|lower|name|partition|sorted|str|text)\b"

_PARENTS: dict[ast.AST, ast.AST] = {}
_MODULES: dict[ast.AST, ModuleType] = {}


@cache
def tree(module: ModuleType) -> ast.Module:
    """Return the source of a module."""
    root = ast.parse(inspect.getsource(module))
    _MODULES[root] = module
    for node in ast.walk(root):
        _PARENTS.update(dict.fromkeys(ast.iter_child_nodes(node), node))
    return root


def around(node: ast.AST) -> list[ast.AST]:
    """Return what a node is in, from the nearest to the module."""
    above = _PARENTS.get(node)
    return [] if above is None else [above, *around(above)]


def texts(node: ast.AST) -> list[str]:  # noqa: PLR0911 - one for each form
    """Return what an expression can be: each of several, and "" for nothing."""
    if isinstance(node, ast.FormattedValue):
        return texts(node.value)
    module = _MODULES[around(node)[-1]]
    if not isinstance(node, ast.List) and all(
        each.id.isupper() for each in ast.walk(node) if isinstance(each, ast.Name)
    ):
        return [str(eval(ast.unparse(node), vars(module)))]  # noqa: S307 - a constant of the code
    match node:
        case ast.JoinedStr(values=parts):
            return ["".join(either(texts(part)) for part in parts)]
        case ast.BinOp(op=ast.Add(), left=left, right=right):
            return [text + either(texts(right)) for text in texts(left)]
        case ast.BinOp(op=ast.Mult(), left=of) | ast.BoolOp(op=ast.And(), values=[*_, of]):
            return ["", *texts(of)]
        case ast.Call(func=ast.Name(id="Subject"), args=[kind, name, *_]):
            return [f"{either(texts(kind))} {either(texts(name))}"]
    parts = _parts(node, module)
    found = [text for part in parts for text in texts(part)]
    words = {*found} - {""}
    own = _capitals(node)
    if isinstance(node, ast.Name) and isinstance(next(iter(parts), None), ast.Call):
        is_value = all(map(str.isupper, words))  # the name may say more of it
        if is_value and (own in WORDS or words.isdisjoint(WORDS)):
            return [own]
    is_fault = len(words) == 1 and words <= WORDS.keys()  # "" is then where there is no finding
    return [*words] if is_fault else found or [own]


def _parts(node: ast.AST, module: ModuleType) -> list[ast.expr]:
    """Return the expressions of which an expression is one."""
    match node:
        case (
            ast.Call(func=ast.Name(id="first_of") | ast.Attribute(attr="join"), args=[of, *_])
            | ast.ListComp(elt=of)
            | ast.GeneratorExp(elt=of)
        ):
            return [of]
        case ast.IfExp(body=of, orelse=other):
            return [of, other]
        case ast.BoolOp(values=values):
            return values
        case ast.Name():
            return values_of(node)
        case ast.Call(func=ast.Name(id=name)):
            return _returned(vars(module).get(name))
    return []


def _returned(called: object) -> list[ast.expr]:
    """Return what a function of ours returns, if it makes texts of findings."""
    if not isinstance(called, FunctionType) or not called.__module__.startswith(OPERATIONS):
        return []
    is_text = called.__annotations__["return"] in {"str", "Subject"}
    if not is_text or called.__name__ == "subject_of":
        return []
    nodes = ast.walk(tree(import_module(called.__module__)))
    functions = (each for each in nodes if isinstance(each, ast.FunctionDef))
    function = next(each for each in functions if each.name == called.__name__)
    returns = (each for each in ast.walk(function) if isinstance(each, ast.Return))
    return [each.value for each in returns if each.value is not None]


def either(found: Iterable[str]) -> str:
    """Return alternatives as one text, without numbers beside what stands for them."""
    every = [*found]
    there = list(dict.fromkeys(text for text in every if text and not text.isdigit())) or every[:1]
    joined = " | ".join(there)
    return f"[{joined}]" if not all(every) else f"({joined})" if there[1:] else joined


def _capitals(node: ast.AST) -> str:
    """Return the word for a value: by what is called, or by the last name."""
    bare = re.sub(r"\[.*\]", "", ast.unparse(node).lower())
    names = re.findall(rf"\b(?!{_OTHERS})[a-z_]\w*", bare) or ["name"]
    name = names[0 if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else -1]
    return next((word for word, of in WORDS.items() if name in of.split()), name.upper())


def values_of(name: ast.Name) -> list[ast.expr]:
    """Return what a name was set to last, or with what its function is called."""
    found: list[ast.expr] = []
    for node, above in pairwise([name, *around(name)]):
        blocks = (each for _, each in ast.iter_fields(above) if isinstance(each, list))
        block: list[ast.AST] = next((each for each in blocks if node in each), [node])
        for before in reversed(block[: block.index(node)]):
            assigns = (each for each in ast.walk(before) if isinstance(each, ast.Assign))
            found += [value for each in assigns for value in _set(each, name.id)]
            if found and isinstance(before, ast.Assign):
                return found
        if isinstance(above, ast.FunctionDef):
            return found or _given(above, name.id)
    return found


def _set(assign: ast.Assign, name: str) -> list[ast.expr]:
    match assign.targets:
        case [ast.Name(id=target)] if target == name:
            return [assign.value]
        case [ast.Tuple(elts=targets)]:
            tuples = (each for each in ast.walk(assign.value) if isinstance(each, ast.Tuple))
            both = [pair for each in tuples for pair in zip(targets, each.elts, strict=False)]
            return [value for target, value in both if ast.unparse(target) == name]
    return []


def _given(function: ast.FunctionDef, name: str) -> list[ast.expr]:
    names = [each.arg for each in function.args.args]
    root = _PARENTS[function]
    if name not in names or not isinstance(root, ast.Module):
        return []
    at = names.index(name)
    calls = (each for each in ast.walk(root) if isinstance(each, ast.Call) and each.args[at:])
    given = [each.args[at] for each in calls if ast.unparse(each.func) == function.name]
    defaults = dict(zip(reversed(names), reversed(function.args.defaults), strict=False))
    return given or ([defaults[name]] if name in defaults else [])
