import time, pytest
from tests.review_test_f import *

@pytest.mark.parametrize("busy", [True, False])
def test_pruned(busy):
    """The definition is taken back: spec.headroom and status.headroom are pruned; program stays."""
    quota = shared_quota("8", headroom=PARTS)
    with new_harness(a_namespace(OTHER), quota, follows_ledgers=True) as h:
        steps(h)
        h.pod("one", "2")
        if busy:
            h.pod("odd", "much"); steps(h, 1)
        h.api.patch(CLUSTER_DEFERRED_QUOTAS, "both", {"spec": {"headroom": None}})
        raw = dict(h.api.get(CLUSTER_DEFERRED_QUOTAS, "both")); raw["status"] = {k: v for k, v in raw["status"].items() if k != "headroom"}
        h.api.update_status(CLUSTER_DEFERRED_QUOTAS, raw)
        run_unasked(h, "big", "8", OTHER)
        for _ in range(4):
            if busy: steps(h, 1)
            else: h.catch_up(); settle(h, OTHER)
        print("before", granted(h), unused(h), "ledger", held(h, NAMESPACE))
        out = h.reserve("one")   # a replica with cold caches
        print("cold", type(out).__name__)
        api = FakeClient(h.cluster); store = SharedQuotaStore(api); store.fetch(NAME)
        door = Reserver(LedgerStore(api), decider=BatchDecider(opted_in_at=h.namespaces.opted_in_at), shared=store)
        quotas = h.quotas.in_namespace(NAMESPACE).deferred
        claim = ch.claim_for_bind(h._stored("one", NAMESPACE), quotas, source=ReservationSource.BIND, observed_version=NEWEST)
        out = door.reserve(NAMESPACE, claim, quotas.observed, deadline=time.monotonic() + 30)
        print("fresh", type(out).__name__, granted(h))
        assert not isinstance(out, Reserved)
