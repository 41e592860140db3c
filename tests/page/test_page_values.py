"""Values of the page: quotas with bars, the queue, consumers, the last hour, and explanations."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tests.admission.handlers.harness import a_namespace, eventually
from tests.builders import a_quota
from tests.controllers.controller_harness import second_harness
from tests.controllers.queue.queue_steps import gated
from tests.controllers.shared.shared_quota_steps import shared_quota, steps
from tests.page.page_harness import ALL, PageHarness, new_page
from tests.reactions import Hold
from webhook.controllers.overview import ClusterOverview
from webhook.controllers.queue.controller import ReleaseOptions
from webhook.controllers.queue.gated_pods import GatedPods
from webhook.kube.api import NAMESPACES, NODES, PODS
from webhook.quota.charging.deferral import deferred_quotas
from webhook.quota.objects.names import DEFERRED_KEYS
from webhook.quota.queue.queued_pods import QueueCriteria, QueuedPod, QueuePolicy

TEAM = "/api/namespaces/team-a"
SCRIPT = "<script>alert(1)</script>"


@pytest.fixture
def page() -> Iterator[PageHarness]:
    """A quota of 2 cpu of which one pod has 500m; another is reserved for, and two wait."""
    with new_page(a_quota("p1", hard={"requests.cpu": "2"})) as made:
        harness = made.controller
        harness.pod("runs", "500m")
        harness.bind("runs")
        gated(harness, "fits", "1")
        gated(harness, "waits", "750m", priority=7)
        harness.removes_gates_at_once = False
        harness.step()
        gated(harness, "behind", "100m")
        harness.step()
        yield made


def test_the_list_has_the_fullest_resource_and_how_many_wait(page: PageHarness) -> None:
    values = page.values("/api/namespaces", page.users.add("ann", ALL))
    (team,) = values["namespaces"]
    assert values["user"] == "ann"
    assert values["isLeader"] is True
    assert team["quotas"] == 1
    assert team["queued"] == 3
    assert team["fullest"] == {"permille": 625, "quota": "p1", "resource": "requests.cpu"}


def test_a_quota_has_its_amounts_and_a_bar_of_thousandths(page: PageHarness) -> None:
    (quota,) = page.values(TEAM, page.users.add("ann", ALL))["quotas"]
    assert (quota["name"], quota["kind"]) == ("p1", "ResourceQuota")
    (cpu,) = quota["resources"]
    assert {name: cpu[name] for name in ("used", "reserved", "elsewhere", "hard")} == {
        "used": "500m",
        "reserved": "750m",
        "elsewhere": "0",
        "hard": "2",
    }
    bar = {name: cpu["bar"][name] for name in ("used", "reserved", "elsewhere")}
    scale = 2350  # of all that is taken, and pending beyond that, in millicores
    assert cpu["pending"] == "1850m"
    assert bar == {"used": 500_000 // scale, "reserved": 750_000 // scale, "elsewhere": 0}
    assert cpu["bar"]["hard"] == 2_000_000 // scale
    assert sum(bar.values()) + cpu["bar"]["pending"] <= 1000


def test_what_waits_never_makes_a_bar_longer_than_twice_the_limit(page: PageHarness) -> None:
    gated(page.controller, "huge", "1k")
    page.controller.step()
    (quota,) = page.values(TEAM, page.users.add("ann", ALL))["quotas"]
    assert quota["resources"][0]["bar"]["hard"] == 500


def test_the_queue_has_places_reasons_and_the_words_of_the_condition(page: PageHarness) -> None:
    queue = page.values(TEAM, page.users.add("ann", ALL))["queue"]
    assert queue["total"] == 3
    shown = {one["pod"]: one for one in queue["pods"]}
    assert list(shown) == ["waits", "fits", "behind"]
    assert shown["waits"]["reason"] == "Released"
    assert (shown["fits"]["place"], shown["fits"]["reason"]) == (1, "QuotaExceeded")
    assert (shown["behind"]["place"], shown["behind"]["reason"]) == (2, "Behind")
    assert shown["behind"]["holder"] == "fits"
    _, pending, _ = page.controller.queue_updates[-1]
    told = {uid.removeprefix("uid-"): status.message for uid, status in pending.items()}
    assert {name: shown[name]["message"] for name in told} == told


def test_a_long_queue_is_cut_and_counted(
    page: PageHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("webhook.page.entries.MOST_QUEUED", 2)
    queue = page.values(TEAM, page.users.add("ann", ALL))["queue"]
    assert (queue["total"], len(queue["pods"])) == (3, 2)


def test_consumers_are_those_that_take_most(page: PageHarness) -> None:
    consumers = page.values(TEAM, page.users.add("ann", ALL))["consumers"]
    assert [(one["pod"], one["state"]) for one in consumers] == [
        ("waits", "reserved"),
        ("runs", "starting"),
    ]
    assert consumers[0]["amounts"] == {"requests.cpu": "750m"}


def test_a_standby_shows_the_same_as_the_leader(page: PageHarness) -> None:
    leader = page.overview.snapshot("team-a")
    with second_harness(page.controller, epoch=[0], follows_ledgers=True) as other:
        other.catch_up()
        other.step()
        standby = ClusterOverview(
            other.controller.usage_cache,
            other.ledgers,
            other.store,
            other.context.timings,
            ReleaseOptions(policy=lambda: other.policy),
        ).snapshot("team-a")
    assert leader is not None
    assert standby is not None
    assert standby.ledger == leader.ledger
    assert [one.pod.name for one in standby.queue] == [one.pod.name for one in leader.queue]
    assert standby.cycle.pending == leader.cycle.pending
    assert standby.consumers == leader.consumers


def test_looks_have_pods_judged_anew_a_tenth_of_the_time_at_most(
    page: PageHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged: list[QueueCriteria] = []
    ordered = GatedPods.ordered

    def slowly(pods: GatedPods, criteria: QueueCriteria) -> tuple[QueuedPod, ...]:
        if not any(one is criteria for one in judged):
            judged.append(criteria)
            page.controller.pass_time(0.5)
        return ordered(pods, criteria)

    def look(number: int) -> list[str]:
        page.controller.policy = QueuePolicy(max_overtakes=number)
        snapshot = page.overview.snapshot("team-a")
        assert snapshot is not None
        assert snapshot.cycle.ledger is not None
        return [one.pod.name for one in snapshot.queue]

    monkeypatch.setattr(GatedPods, "ordered", slowly)
    assert {tuple(look(number)) for number in range(3)} == {("waits", "fits", "behind")}
    assert len(judged) == 1
    page.controller.pass_time(4.5)
    look(3)
    assert len(judged) == 2


def test_pods_judged_by_former_quotas_are_not_decided_by_a_ledger_of_others(
    page: PageHarness,
) -> None:
    harness = page.controller
    harness.create(a_quota("p0", uid="quota-uid-0"))
    harness.step()
    harness.state().rests_until = harness.clock[0] + 5
    with harness.controller.usage_cache.lock:
        harness.state().pod_queue.criteria = QueueCriteria(deferred_quotas((), DEFERRED_KEYS))
    snapshot = page.overview.snapshot("team-a")
    assert snapshot is not None
    assert (snapshot.undecided, snapshot.cycle.ledger) == ("", None)


def test_nothing_is_decided_by_a_ledger_that_is_being_counted(page: PageHarness) -> None:
    page.controller.create(a_quota("p0", uid="quota-uid-0"))
    page.controller.catch_up()
    values = page.values(TEAM, page.users.add("ann", ALL))
    assert values["undecided"] == "usage is being counted for quota: p0"
    assert {one["reason"] for one in values["queue"]["pods"]} == {"NotCounted"}


def test_a_namespace_that_opts_out_is_not_shown_any_more(page: PageHarness) -> None:
    token = page.users.add("ann", ALL)
    page.controller.api.patch(
        NAMESPACES, "team-a", {"metadata": {"labels": {"deferredquota.io/mode": None}}}
    )
    page.controller.catch_up()
    assert page.values("/api/namespaces", token)["namespaces"] == []
    assert page.get(TEAM, token).status_code == 404


def test_a_shared_quota_shows_how_much_others_take_and_not_which_they_are() -> None:
    with new_page(shared_quota("4"), a_namespace("team-b")) as page:
        harness = page.controller
        harness.pod("theirs", "3", namespace="team-b")
        harness.bind("theirs", namespace="team-b")
        steps(harness)
        token = page.users.add("ann", "team-a")
        text = page.get(TEAM, token).text
        (quota,) = page.values(TEAM, token)["quotas"]
    assert (quota["name"], quota["kind"]) == ("both", "ClusterDeferredQuota")
    assert quota["resources"][0]["elsewhere"] == "3"
    assert quota["resources"][0]["permille"] == 750
    assert "team-b" not in text
    assert "theirs" not in text


# -- history ---------------------------------------------------------------------------------


def test_the_last_hour_has_the_changes_of_each_resource(page: PageHarness) -> None:
    page.sample()
    page.clock[0] += 600
    page.sample()
    page.controller.delete("runs")
    page.controller.step()
    page.clock[0] += 600
    page.sample()
    page.clock[0] += 60
    (series,) = page.values(TEAM, page.users.add("ann", ALL))["history"]
    assert (series["quota"], series["resource"]) == ("p1", "requests.cpu")
    assert [point[0] for point in series["points"]] == [1260, 60]
    assert series["points"][0][1:] == [250, 625, 1000]
    assert (series["least"], series["most"]) == ("1250m", "1850m")


# -- explain -----------------------------------------------------------------------------------


def test_a_pod_is_explained_in_the_words_of_the_command(page: PageHarness) -> None:
    values = page.values(f"{TEAM}/pods/fits", page.users.add("ann", ALL))
    outage, quota = values["causes"][:2]
    assert values["cause"] == outage["cause"] == "ledger-not-ready", "no process leads here"
    assert quota["cause"] == "quota"
    assert values["kind"] == "Pod"
    assert values["user"] == "ann"
    (shortage,) = quota["resources"]
    assert (shortage["requested"], shortage["hard"], shortage["missing"]) == ("1", "2", "250m")


def test_a_pod_that_is_not_there_is_said_to_be_gone(page: PageHarness) -> None:
    answer = page.get(f"{TEAM}/pods/missing", page.users.add("ann", ALL))
    assert answer.status_code == 404
    assert answer.json["message"] == "Pod team-a/missing does not exist"  # type: ignore[index]


def test_requests_to_explain_pods_leave_room_for_others(
    page: PageHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("webhook.page.explaining._WAIT_SECONDS", 60.0)
    token, hold = page.users.add("ann", ALL), Hold()
    page.reviews.on("get", PODS, hold)
    codes: list[int] = []

    def ask() -> None:
        codes.append(page.get(f"{TEAM}/pods/fits", token).status_code)

    threads = [threading.Thread(target=ask, daemon=True) for _ in range(8)]
    for thread in threads:
        thread.start()
    try:
        eventually(lambda: codes == [503] * 4, "some are asked to come again")
        page.values(TEAM, token)
    finally:
        hold.release()
        for thread in threads:
            thread.join()
    assert sorted(codes) == [200] * 4 + [503] * 4


def test_pods_of_a_large_cluster_are_not_read_to_explain_one(
    page: PageHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = page.users.add("ann", ALL)
    page.reviews.calls.clear()
    page.values(f"{TEAM}/pods/fits", token)
    assert page.reviews.calls_of("list", NODES)
    monkeypatch.setattr("webhook.page.explaining.MOST_PODS", 3)
    page.reviews.calls.clear()
    values = page.values(f"{TEAM}/pods/fits", token)
    assert values["nodes"] is None
    assert any("nodes: not looked at from here" in one for one in values["unknown"])
    assert not page.reviews.calls_of("list", NODES)
    assert {call.namespace for call in page.reviews.calls_of("list", PODS)} == {"team-a"}


def test_a_pod_is_explained_without_the_pods_beside_it_where_they_are_too_large(
    page: PageHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would be in the memory of the controller, which leads."""
    token = page.users.add("ann", ALL)
    labels = {f"l{number:05}": "" for number in range(5_000)}
    for number in range(4):
        page.controller.pod(f"large-{number}", "1", metadata={"labels": labels})
    page.controller.step()
    assert not any("too large" in one for one in page.values(f"{TEAM}/pods/fits", token)["unknown"])
    monkeypatch.setattr("webhook.page.explaining.MOST_BYTES", 200_000)
    values = page.values(f"{TEAM}/pods/fits", token)
    assert values["name"] == "fits"
    assert (
        "the pods of namespace team-a: too large to be looked at from here; the command line looks"
        " at them"
    ) in values["unknown"]


def test_what_a_pod_requires_of_nodes_is_not_compared_for_minutes(
    page: PageHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other users wait for the answer meanwhile, and the controller is slow."""
    token = page.users.add("ann", ALL)
    monkeypatch.setattr("webhook.page.explaining._MOST_WEIGHT", 100)
    page.controller.api.create(NODES, {"metadata": {"name": "node-1"}})
    term = {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}
    for name, count in (("few", 10), ("many", 100)):
        terms = {"nodeSelectorTerms": [term] * count}
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
        page.controller.pod(name, "1", affinity=affinity)
    page.controller.step()
    assert page.values(f"{TEAM}/pods/few", token)["nodes"] is not None
    values = page.values(f"{TEAM}/pods/many", token)
    assert values["nodes"] is None
    assert any("the pod requires too much of them" in one for one in values["unknown"])


@pytest.mark.parametrize("name", ["..", ".", "%2e%2e", "UPPER", "x" * 300])
def test_a_name_that_no_pod_can_have_is_that_of_no_pod(page: PageHarness, name: str) -> None:
    answer = page.get(f"{TEAM}/pods/{name}", page.users.add("ann", ALL))
    assert answer.status_code == 404
    assert page.read_as == []  # in a path of the API server it could be another object


# -- what strangers write ------------------------------------------------------------------------


def test_names_are_values_and_never_markup(page: PageHarness) -> None:
    gated(page.controller, SCRIPT, "2")
    page.controller.step()
    answer = page.get(TEAM, page.users.add("ann", ALL))
    assert answer.content_type == "application/json"
    assert SCRIPT in {one["pod"] for one in answer.json["queue"]["pods"]}  # type: ignore[index]


@pytest.mark.parametrize("path", ["/", "/page.css", "/page.js", "/api/namespaces", "/missing"])
def test_every_answer_forbids_what_the_page_does_not_need(page: PageHarness, path: str) -> None:
    headers = page.get(path).headers
    directives = dict(
        one.strip().split(" ", 1) for one in headers["Content-Security-Policy"].split(";")
    )
    assert directives["default-src"] == "'none'"
    assert directives["script-src"] == directives["style-src"] == "'self'"
    assert directives["frame-ancestors"] == directives["form-action"] == "'none'"
    assert "unsafe" not in headers["Content-Security-Policy"]
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["Cache-Control"] == "no-store"
    assert "Set-Cookie" not in headers


def test_the_files_have_no_code_or_style_of_their_own_in_the_markup(page: PageHarness) -> None:
    markup = page.get("/").text
    assert page.get("/").content_type == "text/html; charset=utf-8"
    assert "<script>" not in markup
    assert "<style" not in markup
    assert " style=" not in markup
    assert " on" not in markup.replace(" once", "")
    script = page.get("/page.js").text
    for sink in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
        assert sink not in script
    for text in (markup, script, page.get("/page.css").text):
        assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")
        assert "https://" not in text


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_nothing_can_be_written(page: PageHarness, method: str) -> None:
    token = page.users.add("ann", ALL)
    answer = page.app.test_client().open(
        TEAM, method=method, headers={"Authorization": f"Bearer {token}"}
    )
    assert answer.status_code == 405


def test_answers_are_counted_by_view_and_code(page: PageHarness) -> None:
    token = page.users.add("ann", ALL)
    for path in ("/", "/made-up", TEAM, TEAM, f"{TEAM}/pods/missing"):
        page.get(path, token)
    page.get(TEAM)
    counted = {
        (view, code): page.controller.metric("page_requests_total", view=view, code=code)
        for view, code in (
            ("index.html", "200"),
            ("other", "404"),
            ("namespace", "200"),
            ("pod", "404"),
            ("namespace", "401"),
        )
    }
    assert [*counted.values()] == [1, 1, 2, 1, 1]


def test_a_fault_of_the_page_says_nothing_of_itself(
    page: PageHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_name: str) -> None:
        raise RuntimeError("secret detail")

    monkeypatch.setattr(page.overview, "snapshot", broken)
    answer = page.get(TEAM, page.users.add("ann", ALL))
    assert answer.status_code == 500
    assert "secret" not in answer.text
