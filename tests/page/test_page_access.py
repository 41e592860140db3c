"""Users see the namespaces whose quotas and pods they may list, and nothing of any other."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.admission.handlers.harness import a_namespace
from tests.builders import a_quota
from tests.page.page_harness import ALL, PageHarness, new_page
from tests.reactions import Call, Proceed
from webhook.kube.api import ForbiddenError, Revision, UnavailableError
from webhook.page.access import REVIEW_SECONDS, SUBJECT_ACCESS_REVIEWS, TOKEN_REVIEWS

LIST = "/api/namespaces"


@pytest.fixture
def page() -> Iterator[PageHarness]:
    """Two namespaces with a quota each, and one that has not opted in."""
    with new_page(
        a_quota("p1"),
        a_namespace("team-b"),
        a_quota("p2", namespace="team-b", uid="quota-uid-2"),
        a_namespace("native", mode=""),
    ) as made:
        yield made


def names(page: PageHarness, token: str) -> list[str]:
    return [one["name"] for one in page.values(LIST, token)["namespaces"]]


@pytest.mark.parametrize(
    "authorization",
    [
        "",
        "Bearer",
        "Bearer ",
        "Bearer unknown",
        "Basic dG9rZW4=",
        "token-of-ann",
        "Bearer \x7f",
        "Bearer " + "x" * 20_000,
    ],
)
@pytest.mark.parametrize("path", [LIST, f"{LIST}/team-a", f"{LIST}/team-a/pods/web"])
def test_without_a_known_token_nothing_is_answered(
    page: PageHarness, path: str, authorization: str
) -> None:
    page.users.add("ann", ALL)
    answer = page.get(path, Authorization=authorization)
    assert answer.status_code == 401
    assert answer.json["message"] == "a bearer token that the API server knows is needed"  # type: ignore[index]


def test_a_user_sees_the_namespaces_in_which_it_may_list_both(page: PageHarness) -> None:
    assert names(page, page.users.add("ann", "team-a")) == ["team-a"]
    assert names(page, page.users.add("bob", "team-a", "team-b")) == ["team-a", "team-b"]
    assert names(page, page.users.add("cleo", ALL)) == ["team-a", "team-b"]
    assert names(page, page.users.add("dan")) == []


@pytest.mark.parametrize("resource", ["pods", "resourcequotas"])
def test_one_of_both_rights_is_not_enough(page: PageHarness, resource: str) -> None:
    assert names(page, page.users.add("ann", "team-a", resources=(resource,))) == []
    assert names(page, page.users.add("bob", ALL, resources=(resource,))) == []


@pytest.mark.parametrize("path", ["team-b", "team-b/pods/web", "native", "missing", "..%2f"])
def test_what_is_not_shown_is_answered_as_what_is_not_there(page: PageHarness, path: str) -> None:
    token = page.users.add("ann", "team-a", "native")
    answer = page.get(f"{LIST}/{path}", token)
    assert answer.status_code == 404
    if path != "..%2f":
        message = "there is no such namespace, or it is not shown to this user"
        assert answer.json["message"] == message  # type: ignore[index]
    assert page.read_as == []


def test_a_pod_is_read_with_the_token_of_the_user(page: PageHarness) -> None:
    page.controller.pod("web")
    token = page.users.add("ann", "team-a")
    assert page.values(f"{LIST}/team-a/pods/web", token)["name"] == "web"
    assert page.read_as == [token]


def test_what_the_user_may_not_read_of_a_pod_is_refused(page: PageHarness) -> None:
    token = page.users.add("ann", "team-a")

    def forbidden(_call: Call, _proceed: Proceed) -> Revision:
        raise ForbiddenError('pods "web" is forbidden: User "ann" cannot get resource "pods"')

    page.reviews.on("get", "*", forbidden)
    answer = page.get(f"{LIST}/team-a/pods/web", token)
    assert answer.status_code == 403
    assert "ann" in answer.json["message"]  # type: ignore[index]


def test_reviews_count_for_a_while_and_then_are_asked_again(page: PageHarness) -> None:
    token = page.users.add("ann", "team-a")
    assert names(page, token) == ["team-a"]
    asked = len(page.reviews.calls_of("create", TOKEN_REVIEWS))
    rights = len(page.reviews.calls_of("create", SUBJECT_ACCESS_REVIEWS))
    page.users.lists["ann"].clear()
    assert names(page, token) == ["team-a"]
    assert len(page.reviews.calls_of("create", TOKEN_REVIEWS)) == asked
    assert len(page.reviews.calls_of("create", SUBJECT_ACCESS_REVIEWS)) == rights
    page.clock[0] += REVIEW_SECONDS
    assert names(page, token) == []
    del page.users.names[token]
    page.clock[0] += REVIEW_SECONDS
    assert page.get(LIST, token).status_code == 401


def test_rights_of_one_user_are_not_those_of_another(page: PageHarness) -> None:
    ann, bob = page.users.add("ann", "team-a"), page.users.add("bob", "team-b")
    assert names(page, ann) == ["team-a"]
    assert names(page, bob) == ["team-b"]
    assert page.get(f"{LIST}/team-a", bob).status_code == 404


def test_a_token_with_less_of_the_rights_of_its_user_is_reviewed_by_itself(
    page: PageHarness,
) -> None:
    token = page.users.add("ann", "team-a")
    page.users.names["narrow"], page.users.scopes["narrow"] = "ann", "info"
    assert names(page, token) == ["team-a"]
    assert names(page, "narrow") == []
    assert names(page, token) == ["team-a"]


def test_another_token_of_a_user_costs_no_review_of_its_rights(page: PageHarness) -> None:
    token = page.users.add("ann", "team-a")
    assert names(page, token) == ["team-a"]
    rights = len(page.reviews.calls_of("create", SUBJECT_ACCESS_REVIEWS))
    page.users.names["fresh"] = "ann"
    assert names(page, "fresh") == ["team-a"]
    assert len(page.reviews.calls_of("create", SUBJECT_ACCESS_REVIEWS)) == rights


def test_one_list_of_the_service_accounts_of_a_namespace_is_reviewed_at_a_time(
    page: PageHarness,
) -> None:
    one, other, elsewhere = (
        page.users.add(f"system:serviceaccount:{name}", "team-a")
        for name in ("team-a:one", "team-a:other", "team-b:one")
    )
    meanwhile: dict[str, int] = {}

    def review(call: Call, proceed: Proceed) -> Revision:
        is_of_namespace = "namespace" in call.body["spec"]["resourceAttributes"]
        if is_of_namespace and call.body["spec"]["user"].endswith("team-a:one") and not meanwhile:
            meanwhile.update(dict.fromkeys((other, elsewhere), 0))
            for token in meanwhile:
                meanwhile[token] = page.get(LIST, token).status_code
        return page.users.review(call, proceed)

    page.reviews.on("create", SUBJECT_ACCESS_REVIEWS, review)
    assert names(page, one) == ["team-a"]
    assert meanwhile == {other: 429, elsewhere: 200}
    assert names(page, other) == ["team-a"]


def test_a_user_that_may_list_everywhere_costs_no_review_for_each_namespace(
    page: PageHarness,
) -> None:
    assert len(names(page, page.users.add("ann", ALL))) == 2
    assert len(page.reviews.calls_of("create", SUBJECT_ACCESS_REVIEWS)) == 2


def test_unknown_tokens_are_asked_about_at_a_limited_rate(page: PageHarness) -> None:
    codes = [page.get(LIST, f"guess-{number}").status_code for number in range(30)]
    assert set(codes) == {401, 429}
    assert len(page.reviews.calls_of("create", TOKEN_REVIEWS)) == codes.count(401)
    page.clock[0] += 10
    assert names(page, page.users.add("ann", "team-a")) == ["team-a"]


def test_known_tokens_are_answered_while_others_are_guessed(page: PageHarness) -> None:
    token = page.users.add("ann", "team-a")
    assert names(page, token) == ["team-a"]
    for number in range(30):
        page.get(LIST, f"guess-{number}")
    assert names(page, token) == ["team-a"]


@pytest.mark.parametrize("kind", [TOKEN_REVIEWS, SUBJECT_ACCESS_REVIEWS])
def test_a_controller_without_the_rights_of_the_page_says_so(
    page: PageHarness, kind: object
) -> None:
    def forbidden(_call: Call, _proceed: Proceed) -> Revision:
        raise ForbiddenError("may not")

    page.reviews.on("create", kind, forbidden)  # type: ignore[arg-type]
    answer = page.get(LIST, page.users.add("ann", "team-a"))
    assert answer.status_code == 503
    assert "manifests/components/page" in answer.json["message"]  # type: ignore[index]


@pytest.mark.parametrize("kind", [TOKEN_REVIEWS, SUBJECT_ACCESS_REVIEWS])
def test_without_an_answer_of_the_api_server_nothing_is_shown(
    page: PageHarness, kind: object
) -> None:
    def silent(_call: Call, _proceed: Proceed) -> Revision:
        raise UnavailableError("no answer")

    page.reviews.on("create", kind, silent)  # type: ignore[arg-type]
    answer = page.get(LIST, page.users.add("ann", "team-a"))
    assert answer.status_code == 503
    assert "team-a" not in answer.text
