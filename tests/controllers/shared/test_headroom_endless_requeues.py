from collections import Counter
from tests.admission.handlers.harness import a_namespace
from tests.controllers.controller_harness import NAMESPACE, new_harness
from tests.controllers.shared.shared_quota_steps import NAME, OTHER, granted, shared_quota, status_of, steps
from tests.controllers.shared.test_headroom import PARTS, unused, held
from webhook.controllers.shared.grant_transaction import GrantTransaction
from webhook.kube.api import NAMESPACES
from webhook.state.well_known import SCHEDULING_GATE

GATES = [{"name": SCHEDULING_GATE}]

def run(monkeypatch, kept, waiting=True, both=True):
    seen = Counter()
    real = GrantTransaction.note_waiting
    def count(self, pending):
        seen[self.namespace] += 1; seen[str({k:v.reason for k,v in pending.items()})]+=1
        return real(self, pending)
    monkeypatch.setattr(GrantTransaction, "note_waiting", count)
    parts = [{"namespaces": [one], "amounts": {"requests.cpu": "2"}} for one in (NAMESPACE, OTHER)]
    quota = shared_quota("8", headroom=PARTS, **({"kept": parts} if kept else {}))
    with new_harness(a_namespace(OTHER), a_namespace("z"), quota, follows_ledgers=True) as h:
        steps(h)
        h.pod("zz", "3", "z"); h.bind("zz", "z"); steps(h)
        if waiting:
            h.pod("one", "5", schedulingGates=GATES)
            if both: h.pod("two", "5", OTHER, schedulingGates=GATES)
        steps(h, 6)
        seen.clear()
        for _ in range(100):
            h.pass_time(0.1)
            h.step()
        print(kept, waiting, dict(seen), unused(h))
        return sum(seen.values())/2

def test_pingpong(monkeypatch):
    assert run(monkeypatch, True) < 40

def test_no_kept(monkeypatch):
    assert run(monkeypatch, False) < 40

def test_idle(monkeypatch):
    assert run(monkeypatch, True, False) < 40


def test_leak(monkeypatch):
    quota = shared_quota("8", headroom=PARTS)
    with new_harness(a_namespace(OTHER), a_namespace("z"), quota, follows_ledgers=True) as h:
        steps(h)
        h.pod("zz", "4", "z"); h.bind("zz", "z"); steps(h)
        h.pod("two", "6", OTHER, schedulingGates=GATES)
        steps(h)
        assert unused(h) == {}
        from webhook.kube.api import PODS, QUOTA_LEDGERS
        # the namespace goes with all that is in it, before anything of it is settled
        h.api.delete(QUOTA_LEDGERS, "ledger", namespace=OTHER)
        try:
            h.api.delete(NAMESPACES, OTHER)
        except Exception as e: print(e)
        try: h.delete("two", namespace=OTHER)
        except Exception as e: print(e)
        for _ in range(100):
            steps(h, 1)
        ctx = h.controller._shared
        print(ctx._waiting, granted(h), unused(h), status_of(h).get("isRecalled"))
        assert unused(h)
