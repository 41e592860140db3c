"""Directed attempts."""
from tests.controllers.elastic.objects import an_elastic_quota
from tests.controllers.elastic.world import world
from tests.controllers.elastic.test_elastic_quotas import _headroom
from tests.controllers.elastic import objects
from tests.admission.handlers.harness import eventually, a_namespace
from tests.controllers.controller_harness import NAMESPACE, new_harness
from tests.controllers.shared.shared_quota_steps import NAME, OTHER, granted, shared_quota, status_of, steps
from tests.controllers.shared.test_headroom import PARTS, unused, held
import time, pytest
from webhook.state.reserver import Reserved


def test_composite_kept():
    parts = [{"namespaces": [NAMESPACE, OTHER], "amounts": {"requests.cpu": "4"}},
             {"namespaces": ["z"], "amounts": {"requests.cpu": "4"}}]
    quota = shared_quota("8", headroom=parts, kept=parts[:1])
    with new_harness(a_namespace(OTHER), a_namespace("z"), quota, follows_ledgers=True) as h:
        steps(h)
        h.pod("zz", "4", "z"); h.bind("zz", "z"); steps(h)
        print("granted", granted(h), "unused", unused(h))
        h.pod("want", "4", OTHER)
        for _ in range(40):
            out = h.reserve("want", namespace=OTHER) if True else None
            steps(h, 2)
            print(out, unused(h), status_of(h).get("isRecalled"))
            if isinstance(out, Reserved): break
        assert isinstance(out, Reserved), out


def test_uncountable_holder():
    quota = shared_quota("8", headroom=PARTS)
    with new_harness(a_namespace(OTHER), quota, follows_ledgers=True) as h:
        steps(h)
        h.pod("odd", "much", OTHER)
        h.pod("want", "7")
        for _ in range(40):
            out = h.reserve("want")
            steps(h, 2)
        print(out, unused(h), status_of(h).get("isRecalled"))
        assert isinstance(out, Reserved), out
