"""What the client makes of answers, the API server's and those of whatever stands before it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.kube.rest.scripted_server import (
    CHUNKED,
    ScriptedServer,
    a_note,
    answering,
    chunk,
    reply,
    status,
)
from webhook.kube.api import (
    CONFIG_MAPS,
    PODS,
    QUOTA_LEDGERS,
    ApiError,
    BadRequestError,
    ConflictError,
    ExpiredError,
    ForbiddenError,
    InternalError,
    ListOptions,
    NotFoundError,
    Preconditions,
    RequestTimeoutError,
    TooManyRequestsError,
    UnauthorizedError,
    UnavailableError,
)

HTML = "<html><body><h1>Sorry</h1></body></html>"
FORBIDDEN = (
    'pods is forbidden: User "alice" cannot list resource "pods" in API group "" at the cluster '
    "scope"
)


def refusal(answer: bytes) -> ApiError:
    """What the client raises for an answer to a write."""
    with ScriptedServer(answering(answer)) as server, pytest.raises(ApiError) as caught:
        server.client().update(CONFIG_MAPS, a_note())
    assert len(server.requests) == 1
    return caught.value


STATUSES: Mapping[str, tuple[int, str, type[ApiError]]] = {
    "not found": (404, "NotFound", NotFoundError),
    "conflict": (409, "Conflict", ConflictError),
    "expired": (410, "Expired", ExpiredError),
    "gone": (410, "Gone", ExpiredError),
    "failed": (500, "InternalError", InternalError),
    "timed out": (504, "Timeout", RequestTimeoutError),
    "timed out on the server": (500, "ServerTimeout", RequestTimeoutError),
    "unavailable": (503, "ServiceUnavailable", UnavailableError),
    "a reason nobody knows": (502, "Whatever", UnavailableError),
}


@pytest.mark.parametrize(("code", "reason", "expected"), STATUSES.values(), ids=STATUSES.keys())
def test_a_status_is_the_error_that_it_says(
    code: int, reason: str, expected: type[ApiError]
) -> None:
    error = refusal(reply(code, status(code, reason, "so it is", name="notes")))
    assert type(error) is expected
    assert (error.message, error.code) == (
        "so it is",
        code if expected is not UnavailableError else 503,
    )
    assert error.details == {"name": "notes"}


def test_a_status_without_code_takes_that_of_the_answer() -> None:
    sent = status(404, "", "gone")
    del sent["code"]
    error = refusal(reply(404, sent))
    assert (type(error), error.code) == (NotFoundError, 404)


FOREIGN: Mapping[str, tuple[int, type[ApiError]]] = {
    "a load balancer without server": (503, UnavailableError),
    "a bad gateway": (502, UnavailableError),
    "a gateway that waited": (504, RequestTimeoutError),
    "a page that is not there": (404, UnavailableError),
    "a conflict of something else": (409, UnavailableError),
    "a page that is gone": (410, UnavailableError),
    "a form that is invalid": (422, UnavailableError),
    "a broken server": (500, InternalError),
    "a success of something else": (200, UnavailableError),
    "nothing": (204, UnavailableError),
    "a login": (401, UnauthorizedError),
    "a wall": (403, ForbiddenError),
    "a bad request": (400, BadRequestError),
}


@pytest.mark.parametrize(("code", "expected"), FOREIGN.values(), ids=FOREIGN.keys())
def test_a_page_tells_nothing_about_objects(code: int, expected: type[ApiError]) -> None:
    error = refusal(reply(code, "" if code == 204 else HTML, Content_Type="text/html"))
    assert type(error) is expected
    assert f"answered {code} Somehow: text/html that is not the API server's" in error.message


def test_json_that_is_no_status_tells_nothing_about_objects() -> None:
    assert type(refusal(reply(404, {"error": "no such backend"}))) is UnavailableError
    assert type(refusal(reply(404, "[]"))) is UnavailableError
    assert type(refusal(reply(404, "{"))) is UnavailableError


def test_a_path_that_the_api_server_does_not_have_is_not_found() -> None:
    error = refusal(reply(404, "404 page not found\n", Content_Type="text/plain; charset=utf-8"))
    assert type(error) is NotFoundError
    assert error.message == "the server could not find the requested resource"


@pytest.mark.parametrize("code", [301, 302, 307, 308])
def test_a_redirect_is_not_followed(code: int) -> None:
    with ScriptedServer(answering(reply(body=a_note()))) as other:
        error = refusal(reply(code, "", Location=f"{other.url}/elsewhere"))
        assert other.requests == []
    assert type(error) is ApiError
    assert error.code == code
    assert f"a redirect to '{other.url}/elsewhere', which is not followed" in error.message


def test_a_user_that_may_not_learns_which_right_is_missing() -> None:
    assert refusal(reply(403, status(403, "Forbidden", FORBIDDEN))).message == FORBIDDEN


def test_a_refusal_of_credentials_names_them() -> None:
    error = refusal(reply(401, status(401, "Unauthorized", "Unauthorized")))
    assert type(error) is UnauthorizedError
    assert error.message == ("Unauthorized: the API server does not know the credentials of a test")


RETRIES = {
    "in the body": (reply(429, status(429, "TooManyRequests", "m", retryAfterSeconds=7)), 7),
    "in the header": (reply(429, status(429, "TooManyRequests", "m"), Retry_After="3"), 3),
    "in a page's header": (reply(429, HTML, Content_Type="text/html", Retry_After="2"), 2),
    "as a date": (
        reply(429, status(429, "", "m"), Retry_After="Sat, 21 Nov 2026 22:00:00 GMT"),
        None,
    ),
    "not at all": (reply(429, status(429, "TooManyRequests", "m")), None),
}


@pytest.mark.parametrize(("answer", "seconds"), RETRIES.values(), ids=RETRIES.keys())
def test_too_many_requests_say_when_to_come_back(answer: bytes, seconds: int | None) -> None:
    error = refusal(answer)
    assert type(error) is TooManyRequestsError
    assert error.retry_after == seconds


@pytest.mark.parametrize(
    "body",
    ['"text"', "[]", '{"metadata": []}', '{"metadata": {"uid": 5}}', '{"kind": '],
)
def test_a_success_that_is_no_object_leaves_open_what_was_done(body: str) -> None:
    assert type(refusal(reply(200, body))) is UnavailableError


def test_numbers_never_become_floats() -> None:
    sent = '{"a": 0.1, "b": 1E3, "c": 9007199254740993}'
    with ScriptedServer(answering(reply(body=sent))) as server:
        found = server.client().get(CONFIG_MAPS, "notes", namespace="team-a")
    assert found == {"a": "0.1", "b": "1E3", "c": 9007199254740993}


def a_list(*items: object, more: str = "", version: str = "9") -> bytes:
    metadata = {"resourceVersion": version, **({"continue": more} if more else {})}
    return reply(body={"kind": "PodList", "metadata": metadata, "items": list(items)})


def bare(name: str) -> dict[str, object]:
    """An item of a list of a built-in kind: it does not say what it is."""
    metadata = {"name": name, "namespace": "a", "uid": f"u-{name}", "resourceVersion": "4"}
    return {"metadata": metadata, "spec": {"x": "ü"}}


class TestLists:
    def test_items_say_what_they_are(self) -> None:
        with ScriptedServer(answering(a_list(bare("p")))) as server:
            client = server.client()
            listed = client.list(PODS)
            (page,) = client.pages(PODS)
        expected = {"apiVersion": "v1", "kind": "Pod", **bare("p")}
        assert listed.items == (expected,)
        assert page.items[0].object == expected
        (item,) = page.items
        assert (item.key, item.uid, item.resource_version) == ("a/p", "u-p", 4)

    def test_items_that_say_it_themselves_are_left_alone(self) -> None:
        with ScriptedServer(answering(a_list(a_note()))) as server:
            assert server.client().list(CONFIG_MAPS).items == (a_note(),)

    @pytest.mark.parametrize(
        "body",
        ['{"metadata":{"resourceVersion":"9"},"items":null}', a_list()],
        ids=["null", "empty"],
    )
    def test_nothing(self, body: str | bytes) -> None:
        answer = body if isinstance(body, bytes) else reply(body=body)
        with ScriptedServer(answering(answer)) as server:
            client = server.client()
            assert client.list(PODS).items == ()
            assert [page.items for page in client.pages(PODS)] == [()]

    def test_pages_are_asked_for_one_after_the_other(self) -> None:
        answers = (
            a_list(bare("p"), more="token 1/=", version="9"),
            a_list(bare("q"), more="token-2", version="9"),
            a_list(bare("r"), version="9"),
        )
        with ScriptedServer(answering(*answers)) as server:
            pages = server.client().pages(PODS, ListOptions(label_selector="a in (b)"), limit=1)
            assert server.requests == []
            first = next(pages)
            assert len(server.requests) == 1
            rest = list(pages)
        assert [item.key for page in (first, *rest) for item in page.items] == ["a/p", "a/q", "a/r"]
        assert [page.resource_version for page in (first, *rest)] == [9, 9, 9]
        base = "/api/v1/pods?labelSelector=a+in+%28b%29&limit=1"
        assert [asked.target for asked in server.requests] == [
            base,
            f"{base}&continue=token+1%2F%3D",
            f"{base}&continue=token-2",
        ]

    @pytest.mark.parametrize("is_chunked", [False, True], ids=["with a length", "in chunks"])
    def test_a_part_that_is_too_long_is_asked_for_with_fewer_objects(
        self, is_chunked: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("webhook.kube.rest.client.PAGE_BYTES", 1000)
        p, q, r, t = (bare(name) for name in "pqrt")
        for one in (p, q, r):
            one["metadata"] |= {"labels": {"a": "x" * 300}}  # type: ignore[operator]
        whole = a_list(p, q, r, version="9")
        _, _, body = whole.partition(b"\r\n\r\n")
        too_long = CHUNKED + chunk(body) + chunk(b"") if is_chunked else whole
        parts = (
            a_list(p, q, more="1", version="9"),
            a_list(t, more="2", version="9"),
            a_list(r, version="9"),
        )
        with ScriptedServer(answering(too_long), answering(*parts)) as server:
            pages = list(server.client().pages(PODS, limit=8))
        assert [item.key for page in pages for item in page.items] == ["a/p", "a/q", "a/t", "a/r"]
        assert [asked.target.partition("?")[2] for asked in server.requests] == [
            "limit=8",
            "limit=2",
            "limit=2&continue=1",
            "limit=4&continue=2",
        ]

    def test_a_single_object_is_read_however_long_it_is(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("webhook.kube.rest.client.PAGE_BYTES", 10)
        alone = a_list(bare("p"), version="9")
        with ScriptedServer(answering(alone), answering(alone)) as server:
            (page,) = server.client().pages(PODS, limit=4)
        assert [item.key for item in page.items] == ["a/p"]
        assert [asked.target[-8:] for asked in server.requests] == ["?limit=4", "?limit=1"]

    def test_a_list_that_cannot_be_continued_is_expired(self) -> None:
        gone = reply(410, status(410, "Expired", "The provided continue parameter is too old"))
        with ScriptedServer(answering(a_list(bare("p"), more="x"), gone)) as server:
            pages = server.client().pages(PODS)
            next(pages)
            with pytest.raises(ExpiredError, match="too old"):
                next(pages)

    @pytest.mark.parametrize("version", ["", "abc"])
    def test_a_list_without_version_is_none(self, version: str) -> None:
        with (
            ScriptedServer(answering(a_list(version=version))) as server,
            pytest.raises(UnavailableError, match=r"list of pods has no version"),
        ):
            server.client().list(PODS)

    def test_a_list_that_is_cut_short_inside_is_none(self) -> None:
        body = '{"metadata":{"resourceVersion":"9"},"items":[{"metadata":{"name":"a"}},{"me'
        with (
            ScriptedServer(answering(reply(body=body))) as server,
            pytest.raises(UnavailableError, match="list of pods cannot be read"),
        ):
            server.client().list(PODS)


class TestDeleting:
    def test_what_is_gone_is_named(self) -> None:
        gone = {"kind": "Status", "status": "Success", "details": {"name": "notes", "uid": "u-1"}}
        with ScriptedServer(answering(reply(body=gone))) as server:
            revision = server.client().delete(
                CONFIG_MAPS, "notes", namespace="team-a", preconditions=Preconditions("u-1", 5),
                grace_period_seconds=0, dry_run=True,
            )  # fmt: skip
        assert (revision.key, revision.uid) == ("team-a/notes", "u-1")
        assert server.requests[0].method == "DELETE"
        assert server.requests[0].json == {
            "kind": "DeleteOptions",
            "apiVersion": "v1",
            "preconditions": {"uid": "u-1", "resourceVersion": "5"},
            "gracePeriodSeconds": 0,
            "dryRun": ["All"],
        }

    def test_what_stays_for_a_while_is_shown(self) -> None:
        with ScriptedServer(answering(reply(body=a_note(version=8)))) as server:
            revision = server.client().delete(CONFIG_MAPS, "notes", namespace="team-a")
        assert (revision.resource_version, revision.object) == (8, a_note(version=8))
        assert server.requests[0].json == {"kind": "DeleteOptions", "apiVersion": "v1"}


class TestPatching:
    LOST = reply(409, status(409, "Conflict", "please apply your changes to the latest version"))

    def test_a_patch_that_lost_its_races_tries_again(self) -> None:
        with ScriptedServer(answering(self.LOST, self.LOST, reply(body=a_note()))) as server:
            server.client().patch(CONFIG_MAPS, "notes", {"data": {}}, namespace="team-a")
        assert len(server.requests) == 3

    def test_not_for_ever(self) -> None:
        with ScriptedServer(answering(self.LOST)) as server, pytest.raises(ConflictError):
            server.client().patch(CONFIG_MAPS, "notes", {"data": {}}, namespace="team-a")
        assert len(server.requests) == 4

    @pytest.mark.parametrize(
        "patch",
        [
            {"metadata": {"resourceVersion": "5"}},
            {"metadata": {"uid": "u"}},
            [{"op": "replace", "path": "/metadata/resourceVersion", "value": "5"}],
        ],
    )
    def test_a_patch_of_one_version_is_tried_once(
        self, patch: dict[str, object] | list[dict[str, object]]
    ) -> None:
        with ScriptedServer(answering(self.LOST)) as server, pytest.raises(ConflictError):
            server.client().patch(CONFIG_MAPS, "notes", patch, namespace="team-a")
        assert len(server.requests) == 1

    def test_applying_names_the_manager(self) -> None:
        with ScriptedServer(answering(reply(body=a_note()))) as server:
            client = server.client()
            client.apply(CONFIG_MAPS, a_note(), field_manager="installer", force=True)
            client.apply(CONFIG_MAPS, a_note(), field_manager="installer", dry_run=True)
        forced, tried = server.requests
        path = "/api/v1/namespaces/team-a/configmaps/notes?fieldManager=installer"
        assert (forced.method, forced.target) == ("PATCH", f"{path}&force=true")
        assert tried.target == f"{path}&dryRun=All"
        assert forced.headers["content-type"] == "application/apply-patch+yaml"
        assert forced.json == a_note()


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a%2fb"])
def test_a_name_that_cannot_stand_in_a_path_is_not_sent(name: str) -> None:
    with ScriptedServer(answering(reply())) as server:
        client = server.client()
        with pytest.raises(BadRequestError, match=r"metadata\.name"):
            client.get(CONFIG_MAPS, name, namespace="team-a")
        with pytest.raises(BadRequestError, match=r"metadata\.namespace"):
            client.get(QUOTA_LEDGERS, "ledger", namespace=name)
        assert server.requests == []


def test_a_name_is_quoted() -> None:
    with ScriptedServer(answering(reply(body=a_note()))) as server:
        server.client().get(QUOTA_LEDGERS, "a?b c#ü", namespace="team-a")
    base = "/apis/deferredquota.io/v1alpha1/namespaces/team-a/quotaledgers"
    assert server.requests[0].target == f"{base}/a%3Fb%20c%23%C3%BC"


def test_the_version_of_the_server() -> None:
    version = {"major": "1", "minor": "36"}
    with ScriptedServer(answering(reply(body=version))) as server:
        client = server.client()
        assert client.server_version() == version
    assert server.requests[0].target == "/version"
