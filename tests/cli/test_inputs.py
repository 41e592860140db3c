"""What `-f` stands for."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from webhook.cli.exit_codes import InputError
from webhook.cli.files.inputs import manifest_files


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in (
        *("b.yaml", "a.yml", "c.json", "README.md", "d.YAML", "e.yaml.bak"),
        *("m/z.yaml", "m/deep/x.json", "empty/notes.txt", "n.yaml/inside.yaml"),
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    return tmp_path


def files(tree: Path, names: Iterable[str], *, recursive: bool = False) -> list[str]:
    found = manifest_files([str(tree / name) for name in names], recursive=recursive)
    return [str(Path(path).relative_to(tree)) for path in found]


def problems(names: list[str], *, recursive: bool = False) -> tuple[str, ...]:
    with pytest.raises(InputError) as caught:
        manifest_files(names, recursive=recursive)
    return caught.value.problems


def test_a_file_is_read_whatever_its_name(tree: Path) -> None:
    assert files(tree, ["README.md", "b.yaml"]) == ["README.md", "b.yaml"]


def test_a_directory_gives_its_manifests_by_name(tree: Path) -> None:
    assert files(tree, [""]) == ["a.yml", "b.yaml", "c.json"]


def test_a_directory_goes_deeper_when_asked(tree: Path) -> None:
    assert files(tree, [""], recursive=True) == [
        *("a.yml", "b.yaml", "c.json"),
        *("m/deep/x.json", "m/z.yaml", "n.yaml/inside.yaml"),
    ]


def test_the_order_of_the_options_stands(tree: Path) -> None:
    assert files(tree, ["m", "c.json", "a.yml"]) == ["m/z.yaml", "c.json", "a.yml"]


def test_standard_input_keeps_its_place(tree: Path) -> None:
    names = [str(tree / "b.yaml"), "-", str(tree / "a.yml")]
    assert manifest_files(names, recursive=False) == tuple(names)


def test_a_pattern_gives_its_matches_by_name(tree: Path) -> None:
    assert files(tree, ["*.y*ml"]) == ["a.yml", "b.yaml", "n.yaml/inside.yaml"]


def test_a_file_whose_name_looks_like_a_pattern_is_that_file(tree: Path) -> None:
    (tree / "[ab].yaml").write_text("")
    assert files(tree, ["[ab].yaml"]) == ["[ab].yaml"]


def test_a_link_to_a_file_is_read_and_one_to_a_directory_is_not_followed(tree: Path) -> None:
    (tree / "empty" / "link.yaml").symlink_to("../b.yaml")
    (tree / "empty" / "loop").symlink_to("..")
    assert files(tree, ["empty"], recursive=True) == ["empty/link.yaml"]


def test_a_directory_given_as_a_link_is_read(tree: Path) -> None:
    (tree / "link").symlink_to("m")
    assert files(tree, ["link"]) == ["link/z.yaml"]


def test_something_has_to_be_given() -> None:
    assert problems([]) == ("nothing to read: give manifests with -f FILE, -f DIR or -f -",)


def test_standard_input_can_be_read_only_once() -> None:
    assert problems(["-", "-"]) == ("-f -: standard input can be read only once",)


def test_everything_that_is_missing_is_named(tree: Path) -> None:
    names = [str(tree / name) for name in ("none.yaml", "b.yaml", "empty", "no*.yaml")]
    assert problems(names) == (
        f"{tree}/none.yaml: no such file or directory",
        f"{tree}/empty: has no file that ends in .json, .yaml or .yml",
        f"{tree}/no*.yaml: no such file or directory",
    )


def test_of_a_directory_with_manifests_below_it_only_that_is_said(tree: Path) -> None:
    (tree / "above" / "below").mkdir(parents=True)
    (tree / "above" / "below" / "a.yaml").write_text("")
    lead = f"{tree}/above: has no file that ends in .json, .yaml or .yml"
    assert problems([str(tree / "above")]) == (f"{lead}; use -R to read its subdirectories",)


def test_a_directory_below_that_cannot_be_listed_is_no_fault_unless_it_is_asked_for(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = tree / "above" / "below"
    closed.mkdir(parents=True)
    listed = Path.iterdir

    def refuse(path: Path) -> Iterator[Path]:
        if path == closed:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return iter([*listed(path)])

    monkeypatch.setattr(Path, "iterdir", refuse)
    above = str(tree / "above")
    assert problems([above]) == (f"{above}: has no file that ends in .json, .yaml or .yml",)
    assert problems([above], recursive=True) == (f"{closed}: Permission denied",)


def test_an_address_is_refused_with_a_way_out() -> None:
    assert problems(["https://example.com/a.yaml"]) == (
        "https://example.com/a.yaml: URLs are not supported; download it and use -f -",
    )


def test_a_name_that_cannot_be_one_is_named() -> None:
    (problem,) = problems(["a" * 5000])
    assert problem.startswith(f"{'a' * 5000}: ")


def test_a_name_with_a_zero_byte_is_named() -> None:
    assert problems(["a\0b"]) == ("a\0b: no such file or directory",)
