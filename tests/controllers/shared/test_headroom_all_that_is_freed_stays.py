from tests.admission.handlers.harness import a_namespace
from tests.controllers.controller_harness import NAMESPACE, new_harness
from tests.controllers.shared.shared_quota_steps import *
from tests.controllers.shared.test_headroom import PARTS, unused, held
from webhook.kube.api import CLUSTER_DEFERRED_QUOTAS

def test_freed():
    quota = shared_quota("8", headroom=PARTS)
    with new_harness(a_namespace(OTHER), quota, follows_ledgers=True) as h:
        steps(h)
        for n in range(4):
            h.pod(f"b{n}", "1", OTHER); h.bind(f"b{n}", OTHER)
        steps(h)
        print("busy", granted(h), unused(h))
        for n in range(4): h.delete(f"b{n}", namespace=OTHER)
        steps(h, 6)
        print("idle", granted(h), unused(h))
        h.pod("x", "3"); print(h.reserve("x"), status_of(h).get("used"))
        assert sum(int(v) for v in unused(h).values()) <= 4

def test_partly_used_is_noted():
    quota = shared_quota("8", headroom=PARTS)
    with new_harness(a_namespace(OTHER), quota, follows_ledgers=True) as h:
        steps(h)
        h.pod("b", "1", OTHER); print(h.reserve("b", OTHER)); h.bind("b", OTHER); steps(h, 5)
        print(granted(h), unused(h), status_of(h).get("used"))
        assert status_of(h)["used"] == {"requests.cpu": "1"}
