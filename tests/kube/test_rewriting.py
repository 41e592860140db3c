"""Documents changed in the text of their file."""

from __future__ import annotations

import time
from random import Random
from textwrap import dedent

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kube.layouts import layout_of
from webhook.jsonfields.encoding import NumberText
from webhook.kube.files.documents import read_documents
from webhook.kube.files.rewriting import Rewrite, is_same, rewritten


def value_of(text: str) -> object:
    (document,) = read_documents("text", text.encode())
    return document.value


MOVED = {
    "spec.namespaceSelector": "spec.selector.labels",
    "spec.hard": "spec.quota.hard",
    "spec.scopes": "spec.quota.scopes",
    "spec.new.list[0].values": "spec.old",
}
CASES: dict[str, tuple[str, object, str]] = {
    "a scalar keeps its quotes and its comment": (
        """\
        a: "x"  # a
        b: 'x'
        c: x   # c
        """,
        {"a": "w", "b": "w", "c": "w"},
        """\
        a: "w"  # a
        b: 'w'
        c: w   # c
        """,
    ),
    "a member that goes leaves its comments": (
        """\
        a: 1
        # above b
        b:  # beside b
          # in b
          c: |  # of the text
            # no comment
          d: "#no"  # beside d

        # above e
        e: 1
        """,
        {"a": 1, "e": 1},
        """\
        a: 1
        # above b
        # beside b
        # in b
        # of the text
        # beside d

        # above e
        e: 1
        """,
    ),
    "the first, the last and neighbours go": (
        """\
        a: 1
        b: 2

        c: 3
        d: 4
        e: 5
        """,
        {"c": 3},
        """\
        c: 3
        """,
    ),
    "all that is in a mapping goes": (
        """\
        a:  # one
          b: 1  # two
        c: 3
        """,
        {"a": {}, "c": 3},
        """\
        # one
        # two
        a: {}
        c: 3
        """,
    ),
    "the first member of an item goes": (
        """\
        list:
        - a: 1  # one
          b: 2
        -   a: 1
            b: 2
        """,
        {"list": [{"b": 2}, {"b": 2}]},
        """\
        list:
        - # one
          b: 2
        -   b: 2
        """,
    ),
    "members and items are added": (
        """\
        a:
          c: 3  # three
        list:
          - 1  # one
        """,
        {"z": 1, "a": {"b": {"c": [1]}, "c": 3, "d": "4"}, "list": [1, {"a": 1, "b": 2}]},
        """\
        z: 1
        a:
          b:
            c:
            - 1
          c: 3  # three
          d: '4'
        list:
          - 1  # one
          - a: 1
            b: 2
        """,
    ),
    "what is made of a part takes its place": (
        """\
        spec:
            # above
            selector:   # beside
                # above labels
                labels: {a: b}  # beside labels
                annotations: {}
            quota:
                hard:
                    # cpu
                    cpu: "1"
                    pods: 0x10
                    text: |
                      one
                        two
                scopes: [A,
                  B]
        """,
        {
            "spec": {
                "namespaceSelector": {"a": "b"},
                "hard": {"cpu": "1", "text": "one\n  two\n"},
                "scopes": ["A", "B"],
            }
        },
        """\
        spec:
            # above
            # beside
            # above labels
            namespaceSelector: {a: b}  # beside labels
            hard:
                # cpu
                cpu: "1"
                text: |
                  one
                    two
            scopes: [A,
              B]
        """,
    ),
    "a list becomes a part of something new": (
        """\
        spec:
          old:  # beside
          # first
          - a  # a
          - b
          z: 1
        """,
        {"spec": {"new": {"list": [{"name": "x", "values": ["a", "b"]}]}, "z": 1}},
        """\
        spec:
          new:
            list:
            - name: x
              values:  # beside
              # first
              - a  # a
              - b
          z: 1
        """,
    ),
    "a list that is not the same leaves its comments": (
        """\
        spec:
          old:  # beside
            - a  # a
            - a
        """,
        {"spec": {"new": {"list": [{"values": ["a"]}]}}},
        """\
        spec:
          # beside
          # a
          new:
            list:
            - values:
              - a
        """,
    ),
    "a flow on one line": (
        '{a: {b: 1, c: "2"}, "d":{"e":1}, list: [1], spec: {quota: {hard: {x: 1}}}}\n',
        {
            "a": {"c": "2", "n": {"y": [1]}},
            "d": {"e": 2},
            "list": [1, {"z": 1}],
            "spec": {"hard": {"x": 1}},
        },
        '{a: {c: "2", "n": {"y": [1]}}, "d":{"e":2}, list: [1, {"z": 1}], spec: {hard: {x: 1}}}\n',
    ),
    "a flow of several lines": (
        """\
        spec: {  # one
          a: 1,  # two
          b: 2
          # three
        }
        """,
        {"spec": {"b": 2, "c": "3"}},
        """\
        spec: {
          # one
          # two
          b: 2,
          "c": "3"
          # three
        }
        """,
    ),
    "a flow within a block": (
        """\
        spec:
          quota: {"hard":{x: 1}, scopes: [A]}  # beside
        """,
        {"spec": {"hard": {"x": 1}, "scopes": ["A"]}},
        """\
        spec:
          "hard": {x: 1}
          scopes: [A]
          # beside
        """,
    ),
    "an anchor that nothing loses": (
        """\
        a: &a {x: 1}  # a
        b: *a
        c: 1
        """,
        {"a": {"x": 1}, "b": {"x": 1}},
        """\
        a: &a {x: 1}  # a
        b: *a
        """,
    ),
    "an alias that changes": (
        """\
        a: &a
          x: 1
        b: *a  # b
        """,
        {"a": {"x": 1}, "b": {"x": 2}},
        """\
        a: &a
          x: 1
        # b
        b:
          x: 2
        """,
    ),
    "an alias of what goes": (
        """\
        # above
        a: &a {x: 1}  # a
        b: *a
        """,
        {"b": {"x": 1}},
        """\
        # above
        # a
        b:
          x: 1
        """,
    ),
    "an anchor whose value changes elsewhere too": (
        """\
        a: &a {x: 1, z: 2}  # a
        b: *a
        """,
        {"a": {"x": 1}, "b": {"x": 1, "z": 2}},
        """\
        # a
        a:
          x: 1
        b:
          x: 1
          z: 2
        """,
    ),
    "a merge": (
        """\
        a: &a {x: 1}
        b:  # b
          <<: *a
          z: 2
        """,
        {"a": {"x": 1}, "b": {"x": 1}},
        """\
        a: &a {x: 1}
        # b
        b:
          x: 1
        """,
    ),
    "a comment that would fall into a text": (
        """\
        --- # first
        a: |
          text
        b: 1
            # deep
        c: 1
        """,
        {"a": "text\n", "c": 1},
        """\
        --- # first
        # deep
        a: "text\\n"
        c: 1
        """,
    ),
    "a document behind its marker": (
        "--- &a {x: &b 1,\n  w: *b}\n",
        {"w": 1},
        "--- \nw: 1\n",
    ),
    "explicit keys": (
        """\
        ? a  # a
        : 1
        ? b
        : 2
        """,
        {"b": 2},
        """\
        # a
        b: 2
        """,
    ),
}


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize(("text", "value", "expected"), CASES.values(), ids=CASES.keys())
def test_what_differs_is_written_anew_and_all_else_stays(
    text: str, value: object, expected: str, line_end: str
) -> None:
    before, after = (dedent(each).replace("\n", line_end) for each in (text, expected))
    done = rewritten(before, {1: Rewrite(value, MOVED)})
    assert done == after
    assert is_same(value_of(done), value)
    without_end = rewritten(before.removesuffix(line_end), {1: Rewrite(value, MOVED)})
    assert without_end == after.removesuffix(line_end)


def test_other_documents_stay_byte_for_byte() -> None:
    text = "# 1\n%YAML 1.1\n---\na:   1 # a\n...\n\n# 2\n---\na: 1\nb: 2\n--- # 3\n---\na: {b :  1}"
    assert rewritten(text, {2: Rewrite({"b": 2})}) == text.replace("a: 1\nb: 2", "b: 2")


_TEXTS = ("1", "text", "# no comment", "a: b", "two\nlines\n", "")
_SCALARS = (None, True, 1, NumberText("1.50"), *_TEXTS)
_NAMES = ("a", "b.c", "on", "kind", "x/y", "1")


def a_mapping(random: Random, depth: int = 3) -> dict[str, object]:
    return {name: a_value(random, depth) for name in random.sample(_NAMES, random.randint(1, 4))}


def a_value(random: Random, depth: int) -> object:
    match random.randrange(4 if depth else 2):
        case 3:
            return a_mapping(random, depth - 1)
        case 2:
            return [a_value(random, depth - 1) for _ in range(random.randrange(4))]
        case _:
            return random.choice(_SCALARS)


def changed(value: object, random: Random) -> object:
    """A value some parts of which are other ones, are gone, or are new."""
    match random.randrange(6), value:
        case ((0 | 1 | 2 | 3), dict()):
            return changed_mapping(value, random)
        case ((0 | 1 | 2), list()):
            new = [a_mapping(random)] if random.randrange(2) else []
            return [changed(item, random) for item in value] + new
        case 4, _:
            return a_value(random, 2)
        case _:
            return value


def changed_mapping(value: dict[str, object], random: Random) -> dict[str, object]:
    kept = {name: changed(item, random) for name, item in value.items() if random.randrange(4)}
    new: dict[str, object] = {"n": a_value(random, 1)} if random.randrange(2) else {}
    return {**new, **kept} if random.randrange(2) else {**kept, **new}


def test_many_members_in_place_of_many_take_no_time_for_each_pair() -> None:
    text = "".join(f"before{number}: 1\n" for number in range(6000))
    value = {f"after{number}": 1 for number in range(6000)}
    began = time.process_time()
    assert value_of(rewritten(text, {1: Rewrite(value)})) == value
    assert time.process_time() - began < 3  # a second at most; pairs would take six


@given(seed=st.integers(0, 2**32))
def test_any_change_keeps_each_comment_once_and_in_order(seed: int) -> None:
    random = Random(seed)  # noqa: S311 - a test
    value = a_mapping(random)
    layout = layout_of(value, random)
    new = changed_mapping(value, random) or {"n": 1}
    done = rewritten(layout.text, {1: Rewrite(new)})
    assert is_same(value_of(done), new)
    assert layout.comments_in(done) == layout.comments
