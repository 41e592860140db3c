from tests.review_test_f import *
import webhook.controllers.shared.grant_transaction as gt
def test_old_leader(monkeypatch):
    """A leader of the former version counts by force: it knows no headroom."""
    quota = shared_quota("8", headroom=PARTS)
    with new_harness(a_namespace(OTHER), quota, follows_ledgers=True) as h:
        steps(h)
        monkeypatch.setattr(gt, "exceeds_beside_headroom", lambda *a: False)
        run_unasked(h, "big", "8", OTHER); h.pod("one", "2")
        h.catch_up(); settle(h, OTHER)
        print(granted(h), held(h, NAMESPACE))
        api = FakeClient(h.cluster); store = SharedQuotaStore(api); store.fetch(NAME)
        door = Reserver(LedgerStore(api), decider=BatchDecider(opted_in_at=h.namespaces.opted_in_at), shared=store)
        quotas = h.quotas.in_namespace(NAMESPACE).deferred
        claim = ch.claim_for_bind(h._stored("one", NAMESPACE), quotas, source=ReservationSource.BIND, observed_version=NEWEST)
        out = door.reserve(NAMESPACE, claim, quotas.observed, deadline=time.monotonic() + 30)
        assert not isinstance(out, Reserved)
