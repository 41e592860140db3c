from tests.admission.handlers.harness import eventually
from tests.controllers.elastic.objects import an_elastic_quota
from tests.controllers.elastic.world import world
from tests.controllers.elastic.test_elastic_quotas import _headroom
import time

def test_ceq():
    quotas = (an_elastic_quota("team-c", {"cpu": 4}, namespaces=["team-a", "team-b"], lendable={"cpu": 0}),
              )
    z = an_elastic_quota("team-c", {"cpu": 4}); 
    with world(*quotas, z) as here:
        eventually(lambda: here.hard().get("epool.default") == {"requests.cpu": "8"}, "pool")
        here.harness.catch_up(); eventually(here.engine_is_quiet, "counted")
        time.sleep(1)
        print(_headroom(here))
        assert here.bind("c", "team-c", cpu="4").allowed
        time.sleep(1)
        print(_headroom(here))
        r = here.bind("big", "team-b", cpu="4")
        print(r.code, r.message)
        assert r.allowed
