import time
from tests.admission.handlers.harness import a_namespace
from tests.controllers.controller_harness import NAMESPACE, new_harness
from tests.controllers.shared.shared_quota_steps import *
from tests.controllers.shared.test_headroom import PARTS, unused, held, run_unasked
from webhook.kube.api import CLUSTER_DEFERRED_QUOTAS
from webhook.fakecluster.storage import FakeClient
from webhook.state.ledger_store import LedgerStore
from webhook.state.reserver import Reserver, Reserved
from webhook.state.batch_decision import BatchDecider
from webhook.state.shared_quotas import SharedQuotaStore
from webhook.quota.charging.deferral import *
from webhook.quota.ledger.ledger import ReservationSource, NEWEST
from tests.controllers import controller_harness as ch
import pytest

@pytest.mark.parametrize("wipe", [True, False])
@pytest.mark.parametrize("busy", [True, False])
def test_wiped(wipe, busy):
    quota = shared_quota("8", headroom=PARTS)
    with new_harness(a_namespace(OTHER), quota, follows_ledgers=True) as h:
        steps(h)
        api = FakeClient(h.cluster)
        store = SharedQuotaStore(api); store.fetch(NAME)       # a replica whose watch is late
        door = Reserver(LedgerStore(api), decider=BatchDecider(opted_in_at=h.namespaces.opted_in_at), shared=store)
        h.pod("one", "2")
        if wipe:
            raw = h.api.get(CLUSTER_DEFERRED_QUOTAS, "both")
            h.api.update_status(CLUSTER_DEFERRED_QUOTAS, {**raw, "status": {}})
        run_unasked(h, "big", "8", OTHER)
        if busy:
            h.pod("odd", "much")   # NAMESPACE cannot be counted
        for _ in range(4):
            if busy: steps(h, 1)
            else:
                h.catch_up(); settle(h, OTHER)
        print("before", granted(h), unused(h), "ledger", held(h, NAMESPACE), is_complete(h))
        pod = h._stored("one", NAMESPACE)
        quotas = h.quotas.in_namespace(NAMESPACE).deferred
        claim = ch.claim_for_bind(pod, quotas, source=ReservationSource.BIND, observed_version=NEWEST)
        out = door.reserve(NAMESPACE, claim, quotas.observed, deadline=time.monotonic() + 30)
        print(out)
        assert not isinstance(out, Reserved)
