"""Public names of the core."""

from __future__ import annotations

import subprocess
import sys

import pytest

import webhook.quota
from tests.builders import a_job, a_pod, a_quota
from webhook.quota import Quantity, evaluate, job_update_errors, pod_usage


def test_the_four_functions_work_from_the_package() -> None:
    pod = a_pod(requests={"cpu": "1"})
    assert str(Quantity.parse("1.5Gi")) == "1536Mi"
    assert pod_usage(pod)["requests.cpu"] == Quantity.parse("1")
    assert evaluate(pod, [a_quota(used={"requests.cpu": "1"})]).used_after == {
        "team-a": {"requests.cpu": Quantity.parse("2")}
    }
    assert job_update_errors(a_job(), a_job()) == []


@pytest.mark.parametrize("name", webhook.quota.__all__)
def test_every_public_name_is_there_and_listed(name: str) -> None:
    assert getattr(webhook.quota, name) is not None
    assert name in dir(webhook.quota)


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"'webhook\.quota' has no attribute 'quantities'"):
        getattr(webhook.quota, "quantities")  # noqa: B009 - a type checker refuses the other form


def test_importing_the_package_loads_none_of_it() -> None:
    listed = "import sys, webhook.quota; print([m for m in sys.modules if 'webhook.quota.' in m])"
    done = subprocess.run(
        [sys.executable, "-c", listed], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
