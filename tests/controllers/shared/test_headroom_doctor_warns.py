from tests.operations.doctor.test_cluster_quotas import *
from webhook.quota.shared.grants import with_headroom
import tests.operations.doctor.test_cluster_quotas as m

def test_doctor(monkeypatch):
    real = m.grants_status
    monkeypatch.setattr(m, "grants_status", lambda g, hard: real(with_headroom(g, NAMESPACE, cpu("4")), hard))
    cluster = healthy()
    shared(cluster, granted={NAMESPACE: "5"}, ledger="5")
    found = [(f.id, f.message) for f in examined(cluster).findings if f.id.startswith("cdq")]
    print(found)
    assert not found
