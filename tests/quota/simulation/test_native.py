"""Native charging is what the API server's quota check answers on the pods that there are."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tests.quota.simulation.scenarios import random_scenario
from webhook.quota.charging.evaluation import evaluate
from webhook.quota.charging.status_mask import native_count
from webhook.quota.objects.model import Pod
from webhook.quota.simulation.simulator import simulate
from webhook.quota.simulation.values import EventKind, Mode

CREATIONS = frozenset({EventKind.CREATED, EventKind.CREATE_REFUSED})


@given(st.integers(0, 10**6))
def test_every_creation_is_answered_as_the_api_server_answers(seed: int) -> None:
    scenario, _ = random_scenario(seed, "team-a", pods=25)
    stored: dict[str, Pod] = {}
    for event in simulate(scenario, Mode.NATIVE):
        pod = replace(event.arrival.template.pod, name=event.arrival.name)
        if event.kind in CREATIONS:
            quotas = [
                replace(
                    quota,
                    status_hard=quota.hard,
                    status_used=native_count(quota, stored.values()),
                )
                for quota in scenario.quotas
            ]
            answer = evaluate(pod, quotas)
            assert answer.allowed is (event.kind is EventKind.CREATED)
            assert answer.message == event.detail
        if event.kind is EventKind.CREATED:
            stored[pod.name] = pod
        elif event.kind is EventKind.ENDED:
            del stored[pod.name]
