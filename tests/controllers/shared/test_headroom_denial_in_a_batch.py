from tests.quota.shared.test_escrow import *
from tests.quota.shared import test_escrow as t
from webhook.state.batch_decision import *
from webhook.state.batch_decision import Batch, BatchDecider
from webhook.state.group_commit import PendingClaim
from webhook.state.shared_quotas import SharedQuotaLookup, SharedQuotaVersion
from webhook.quota.ledger.ledger import final_verdicts, Claim, ReservationSource, NEWEST
from webhook.quota.shared.grants import mark_complete


def test_provisional():
    found = with_spare(shared(a="0", b="2"), b="2")
    found = replace(found, grants=mark_complete(found.grants, DEFERRED.observed))
    ledger = a_ledger(used="0", granted="0")
    version = SharedQuotaVersion(found.quota, "u", 1, found)
    lookups = {NAME: SharedQuotaLookup(version)}
    def cl(uid, n):
        return PendingClaim(Claim(uid, uid, ReservationSource.BIND, cpu(n), (NAME,), observed_version=NEWEST), ledger.observed, 1e18)
    known = beside(ledger, "a", {NAME: found})
    d = BatchDecider().decide("a", known, [cl("p1", "9"), cl("p2", "8")], lookups)
    print(d.verdicts)
    print(final_verdicts(d.verdicts, is_written=False))
    alone = BatchDecider().decide("a", known, [cl("p1", "9")], lookups)
    print("alone:", alone.verdicts)
    assert final_verdicts(d.verdicts, is_written=False)[0] is None
