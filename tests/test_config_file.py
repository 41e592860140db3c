"""The configuration file is followed while the webhook runs."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from webhook.config import Configuration, ConfigurationError, ConfigurationFile, MustSpecify
from webhook.policy import check_configuration

HEAD = "apiVersion: deferredquota.io/v1alpha1\nkind: Configuration\n"
BIND = HEAD + "mustSpecify: bind\n"
WRONG = HEAD + "mustSpecify: never\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "config.yaml"
    file.write_text(HEAD)
    return file


def rejection_of(file: ConfigurationFile) -> str:
    return file.rejection.error if file.rejection else ""


def test_a_change_takes_effect_at_the_next_poll(path: Path) -> None:
    file = ConfigurationFile(path)
    path.write_text(BIND)
    assert file.current == Configuration()
    assert file.poll()
    assert file.current == Configuration(must_specify=MustSpecify.BIND)


def test_its_digest_is_that_of_the_text_in_force(path: Path) -> None:
    file = ConfigurationFile(path)
    digests = [file.digest]
    for text in (BIND, WRONG, HEAD):
        path.write_text(text)
        file.poll()
        digests.append(file.digest)
    first, second, kept, again = digests
    assert (first, second) == (again, kept)
    assert 0 < first != second < 2**48


def test_an_unchanged_file_is_not_read_again(path: Path) -> None:
    file = ConfigurationFile(path)
    before = file.current
    assert not file.poll()
    assert file.current is before


def test_a_wrong_change_keeps_the_configuration_and_says_so_once(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path.write_text(BIND)
    file = ConfigurationFile(path)
    path.write_text(WRONG)
    with caplog.at_level(logging.INFO):
        assert [file.poll(), file.poll()] == [False, False]
    assert file.current.must_specify is MustSpecify.BIND
    assert f"{path}: mustSpecify: must be one of" in rejection_of(file)
    assert [(record.levelname, record.message) for record in caplog.records] == [
        ("ERROR", "configuration rejected, the one before stays")
    ]


CLASS_RULE = """
requireQuotaForPriority:
- {{scopeName: PriorityClass, operator: {operator}, values: [{value}]}}
"""
UNUSABLE_RULES = {
    "an operator in the wrong case": (
        {"operator": "in", "value": "gold"},
        "requireQuotaForPriority[0].operator: not a valid selector operator",
    ),
    "a value that no label can have": (
        {"operator": "In", "value": "'a b'"},
        "requireQuotaForPriority[0].values[0]: must be a valid label value",
    ),
}


@pytest.mark.parametrize(("rule", "error"), UNUSABLE_RULES.values(), ids=UNUSABLE_RULES.keys())
def test_a_class_rule_that_cannot_be_evaluated_never_replaces_one_that_can(
    path: Path, rule: dict[str, str], error: str
) -> None:
    good, bad = CLASS_RULE.format(operator="In", value="gold"), CLASS_RULE.format(**rule)
    path.write_text(HEAD + good)
    file = ConfigurationFile(path, check=check_configuration)
    before = file.current
    path.write_text(HEAD + bad)
    assert not file.poll()
    assert file.current is before
    assert rejection_of(file) == f"{path}: {error}"
    with pytest.raises(ConfigurationError) as caught:
        ConfigurationFile(path, check=check_configuration)
    assert str(caught.value) == f"{path}: {error}"


def test_a_repaired_file_takes_effect_and_is_reported(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = ConfigurationFile(path)
    path.write_text(WRONG)
    file.poll()
    caplog.clear()
    caplog.set_level(logging.INFO)
    path.write_text(BIND)
    assert file.poll()
    assert file.current.must_specify is MustSpecify.BIND
    assert file.rejection is None
    assert [record.message for record in caplog.records] == ["configuration reloaded"]


def test_a_file_that_went_away_keeps_the_configuration(path: Path) -> None:
    path.write_text(BIND)
    file = ConfigurationFile(path)
    path.unlink()
    assert [file.poll(), file.poll()] == [False, False]
    assert file.current.must_specify is MustSpecify.BIND
    assert rejection_of(file) == f"{path}: No such file or directory"


def test_a_refusal_of_the_callers_check_keeps_the_configuration(path: Path) -> None:
    def check(configuration: Configuration) -> None:
        if configuration.must_specify is MustSpecify.BIND:
            raise ValueError("mustSpecify: not yet")

    file = ConfigurationFile(path, check=check)
    path.write_text(BIND)
    assert not file.poll()
    assert file.current == Configuration()
    assert rejection_of(file) == f"{path}: mustSpecify: not yet"


def test_a_mounted_config_map_is_followed_through_its_links(tmp_path: Path) -> None:
    for number, text in enumerate((HEAD, BIND)):
        (tmp_path / f"..{number}").mkdir()
        (tmp_path / f"..{number}" / "config.yaml").write_text(text)
    data, path = tmp_path / "..data", tmp_path / "config.yaml"
    data.symlink_to("..0")
    path.symlink_to("..data/config.yaml")
    file = ConfigurationFile(path)
    (tmp_path / "..new").symlink_to("..1")
    (tmp_path / "..new").rename(data)  # as the kubelet swaps a volume
    assert file.poll()
    assert file.current.must_specify is MustSpecify.BIND


def test_a_rewrite_of_the_same_size_at_the_same_time_is_seen(path: Path) -> None:
    path.write_text(HEAD + "mustSpecify: off\n#\n")
    file = ConfigurationFile(path)
    before = path.stat()
    path.write_text(HEAD + "mustSpecify: bind\n\n")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size
    assert file.poll()


UNREADABLE = {
    "missing": (None, "No such file or directory"),
    "not UTF-8": (b"\xff\xfe\x00", "is not UTF-8 text"),
    "wrong": (WRONG.encode(), "mustSpecify: must be one of create, bind, off, not 'never'"),
}


@pytest.mark.parametrize(("content", "detail"), UNREADABLE.values(), ids=UNREADABLE.keys())
def test_the_first_reading_must_succeed(tmp_path: Path, content: bytes | None, detail: str) -> None:
    path = tmp_path / "config.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigurationError) as caught:
        ConfigurationFile(path)
    assert str(caught.value) == f"{path}: {detail}"
