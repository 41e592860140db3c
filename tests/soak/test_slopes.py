"""Slopes of samples."""

from __future__ import annotations

import os

import pytest

from tests.soak.sampling import sample
from tests.soak.slopes import MIB, Limits, Sample, as_course, as_markdown, problems, row, slope


def samples(*memory: int, step: float = 600.0) -> list[Sample]:
    return [Sample(step * at, MIB * each, 20, 5) for at, each in enumerate(memory)]


def test_a_slope_is_that_of_the_line_through_the_points() -> None:
    assert slope([(0.0, 1.0), (1.0, 3.0), (2.0, 5.0)]) == 2.0
    assert slope([(0.0, 1.0), (1.0, 4.0), (2.0, 1.0)]) == 0.0
    assert slope([(3.0, 1.0), (3.0, 2.0)]) == 0.0


def test_what_comes_before_the_end_of_the_warm_up_does_not_count() -> None:
    found = row("webhook-0", samples(10, 60, 80, 80, 80), warm_up=1200)
    assert (found.memory, found.first.memory, found.hours) == (0.0, 80 * MIB, 1200 / 3600)
    assert problems([found], Limits()) == []


def test_what_grows_is_named() -> None:
    found = row("webhook-0", samples(80, 80, 81, 82, 83), warm_up=600)
    assert found.memory == 6 * MIB
    assert problems([found], Limits()) == ["webhook-0: MiB of memory grow by 6.0 an hour, not 1.0"]
    leaking = [Sample(600.0 * at, MIB, 20 + at, 5 + 2 * at) for at in range(4)]
    assert [
        text.partition(" grow ")[0] for text in problems([row("c", leaking, warm_up=0)], Limits())
    ] == ["c: descriptors", "c: threads"]


def test_what_shrinks_is_no_problem() -> None:
    assert problems([row("c", samples(9, 8, 7), warm_up=0)], Limits()) == []


def test_too_few_samples_prove_nothing() -> None:
    with pytest.raises(ValueError, match="c: too few samples after 600 s"):
        row("c", samples(9, 8), warm_up=600)


def test_the_table_has_a_line_for_each_process() -> None:
    *_, line = as_markdown([row("c", samples(9, 10), warm_up=0)]).splitlines()
    assert line == "| c | 9.0 → 10.0 MiB | +6.0 MiB | 20 → 20 | +0.0 | 5 → 5 | +0.0 |"


def test_the_course_of_memory_has_a_mean_for_each_tenth() -> None:
    *_, line = as_course({"c": samples(*range(20))}).splitlines()
    assert line == "| c | 0.5 | 2.5 | 4.5 | 6.5 | 8.5 | 10.5 | 12.5 | 14.5 | 16.5 | 18.5 |"
    *_, line = as_course({"c": samples(1, 2)}).splitlines()
    assert line.count("1.0") + line.count("2.0") == 10


def test_a_process_is_sampled_by_its_group() -> None:
    mine = sample(os.getpgrp())
    assert mine.memory > MIB
    assert mine.descriptors >= 3
    assert mine.threads >= 1
    assert sample(2**30).memory == 0
