"""The admission chain, against a webhook server on this machine."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TypeVar

import pytest

from tests.builders import a_binding, a_container, a_pod, a_quota
from tests.fakecluster.webhook_server import (
    ReceivedReview,
    Reply,
    Responder,
    WebhookServer,
    allow,
    answer,
    deny,
    patch,
)
from tests.kube.builders import a_cluster, a_config_map, a_write, mapping, meta
from webhook.fakecluster.admission.chain import AdmissionChain, AdmissionRun, Rule, Webhook
from webhook.fakecluster.admission.webhook_client import WebhookCaller
from webhook.fakecluster.admission.webhook_reviews import Phase, UserInfo
from webhook.fakecluster.storage import FakeClient, FakeCluster
from webhook.fakecluster.storage.admission_hook import WriteRequest
from webhook.kube.api import (
    BINDINGS,
    CONFIG_MAPS,
    NAMESPACES,
    NODES,
    PODS,
    RESOURCE_QUOTAS,
    ApiError,
    BadRequestError,
    ConflictError,
    ForbiddenError,
    InternalError,
    InvalidError,
    Kind,
    NotFoundError,
    Object,
    TooManyRequestsError,
)

T = TypeVar("T")
ALICE = UserInfo("alice", groups=("devs",))
ANY = Rule(frozenset({"*"}), frozenset({"*/*"}))


class Setup:
    """A cluster behind webhooks that a test registers."""

    def __init__(self, hooks: WebhookServer, caller: WebhookCaller) -> None:
        self.hooks = hooks
        self.caller = caller
        self.cluster: FakeCluster = a_cluster()
        self.registered: list[Webhook] = []
        self.chains: list[AdmissionChain] = []
        self.defaults: Callable[[Kind, Object], Object] = lambda _, obj: obj

    def register(self, name: str, phase: Phase, answering: Responder, **fields: object) -> None:
        """Register a webhook that answers at a path of its own."""
        path = f"/{name}"
        self.hooks.answers[path] = answering
        hook = Webhook(f"{name}.example.com", self.hooks.url + path, phase, (ANY,))
        self.registered.append(replace(hook, **fields))  # type: ignore[arg-type] # the test's

    def passage(self, options: Mapping[str, object] | None = None) -> AdmissionRun:
        """The chain as one request of alice passes it."""
        chain = AdmissionChain(
            self.registered,
            self.caller,
            namespace_labels=lambda _: {},
            defaults=self.defaults,
        )
        self.chains.append(chain)
        return chain.run(ALICE, options)

    def client(self, passage: AdmissionRun | None = None) -> FakeClient:
        """A client of alice."""
        return FakeClient(self.cluster, admission=passage or self.passage())

    def asked(self, name: str) -> list[ReceivedReview]:
        """What a webhook was asked, in order."""
        return [asked for asked in self.hooks.asked if asked.path == f"/{name}"]


@pytest.fixture
def setup(hooks: WebhookServer, caller: WebhookCaller) -> Iterator[Setup]:
    made = Setup(hooks, caller)
    yield made
    for chain in made.chains:
        chain.close()


def refusal(do: Callable[[], T], kind: type[ApiError] = ApiError) -> ApiError:
    with pytest.raises(kind) as caught:
        do()
    return caught.value


BAD_PATCHES: tuple[tuple[dict[str, object], str], ...] = (
    (
        {"op": "remove", "path": "/spec/nope"},
        'doc is missing path: "/spec/nope": missing value',
    ),
    (
        {"op": "remove", "path": "/data/nope"},
        "Unable to remove nonexistent key: nope: missing value",
    ),
    (
        {"op": "replace", "path": "/data/nope", "value": "1"},
        "replace operation does not apply: doc is missing key: /data/nope: missing value",
    ),
    (
        {"op": "add", "path": "/nope/a", "value": "1"},
        'add operation does not apply: doc is missing path: "/nope/a": missing value',
    ),
    (
        {"op": "test", "path": "/data/text", "value": "x"},
        "testing value /data/text failed: test failed",
    ),
    (
        {"op": "copy", "from": "/data/nope", "path": "/data/a"},
        "error in copy for path: '/data/a': missing value",
    ),
    ({"op": "frob", "path": "/data"}, "operation 1 of the JSON Patch has an unknown op"),
    ({"op": "replace", "path": "/kind", "value": "Pod"}, "the patch changes kind to Pod"),
    (
        {"op": "replace", "path": "", "value": []},
        "the patch leaves something that is not an object",
    ),
)


class TestMutating:
    def test_each_webhook_sees_what_those_before_it_made(self, setup: Setup) -> None:
        setup.register("one", "mutating", patch({"op": "add", "path": "/data/a", "value": "1"}))
        setup.register(
            "two", "mutating", patch({"op": "copy", "from": "/data/a", "path": "/data/b"})
        )
        setup.register("last", "validating", allow)
        created = setup.client().create(CONFIG_MAPS, a_config_map())
        assert mapping(created.object, "data") == {"a": "1", "b": "1"}
        assert mapping(setup.asked("one")[0].request, "object", "data") == {}
        assert mapping(setup.asked("two")[0].request, "object", "data") == {"a": "1"}
        assert mapping(setup.asked("last")[0].request, "object", "data") == {"a": "1", "b": "1"}

    def test_a_webhook_is_asked_again_if_it_wants_when_a_later_one_changed_something(
        self, setup: Setup
    ) -> None:
        change = patch({"op": "add", "path": "/data/a", "value": "1"})
        setup.register("again", "mutating", allow, reinvocation="IfNeeded")
        setup.register("once", "mutating", change)
        setup.register("last", "mutating", allow, reinvocation="IfNeeded")
        setup.client().create(CONFIG_MAPS, a_config_map())
        counts = {name: len(setup.asked(name)) for name in ("again", "once", "last")}
        assert counts == {"again": 2, "once": 1, "last": 1}
        assert mapping(setup.asked("again")[1].request, "object", "data") == {"a": "1"}

    def test_a_refusal_ends_the_chain(self, setup: Setup) -> None:
        setup.register("one", "mutating", deny(message="no", code=403))
        setup.register("two", "mutating", allow)
        setup.register("three", "validating", allow)
        refusal(lambda: setup.client().create(CONFIG_MAPS, a_config_map()), ForbiddenError)
        assert [asked.path for asked in setup.hooks.asked] == ["/one"]

    def test_defaults_are_filled_in_before_and_after_every_patch(self, setup: Setup) -> None:
        def defaulted(kind: Kind, obj: Object) -> Object:
            assert kind == CONFIG_MAPS
            return {"immutable": False, **obj}

        setup.defaults = defaulted
        setup.register("one", "mutating", patch({"op": "remove", "path": "/immutable"}))
        setup.register("two", "mutating", allow)
        created = setup.client().create(CONFIG_MAPS, a_config_map())
        assert created.object["immutable"] is False
        shown = [mapping(asked.request, "object")["immutable"] for asked in setup.hooks.asked]
        assert shown == [False, False]

    @pytest.mark.parametrize(("operation", "text"), BAD_PATCHES)
    def test_a_patch_that_does_not_apply_fails_the_request(
        self, setup: Setup, operation: dict[str, object], text: str
    ) -> None:
        fine = {"op": "add", "path": "/data/fine", "value": "1"}
        setup.register("one", "mutating", patch(fine, operation), failure_policy="Ignore")
        sent = a_config_map(text="one")
        error = refusal(lambda: setup.client().create(CONFIG_MAPS, sent), InternalError)
        assert error.code == 500
        assert error.message.startswith("Internal error occurred: ")
        assert error.message.endswith(text)

    def test_a_deletion_cannot_be_patched(self, setup: Setup) -> None:
        FakeClient(setup.cluster).create(CONFIG_MAPS, a_config_map())
        setup.register("one", "mutating", patch({"op": "add", "path": "/a", "value": 1}))
        error = refusal(lambda: setup.client().delete(CONFIG_MAPS, "notes", namespace="team-a"))
        assert "attempted to modify the object, which is not supported" in error.message

    def test_an_empty_patch_changes_nothing(self, setup: Setup) -> None:
        setup.register("one", "mutating", patch())
        created = setup.client().create(CONFIG_MAPS, a_config_map(text="one"))
        assert mapping(created.object, "data") == {"text": "one"}


DENIALS: dict[str, tuple[dict[str, object], type[ApiError], int, str]] = {
    "a message": (
        {"message": "too much", "code": 403, "reason": "Forbidden"},
        ForbiddenError,
        403,
        ": too much",
    ),
    "only a reason": ({"reason": "Forbidden", "code": 403}, ForbiddenError, 403, ": Forbidden"),
    "nothing": ({}, BadRequestError, 400, " without explanation"),
    "no code": ({"message": "no"}, BadRequestError, 400, ": no"),
    "a code below 400": ({"message": "no", "code": 200}, BadRequestError, 400, ": no"),
    "invalid": ({"message": "no", "code": 422, "reason": "Invalid"}, InvalidError, 422, ": no"),
    "conflict": ({"message": "no", "code": 409, "reason": "Conflict"}, ConflictError, 409, ": no"),
    "not found": ({"message": "no", "code": 404, "reason": "NotFound"}, NotFoundError, 404, ": no"),
    "a code of nobody": ({"message": "no", "code": 418}, ApiError, 418, ": no"),
}


class TestDenials:
    @pytest.mark.parametrize("phase", ["mutating", "validating"])
    @pytest.mark.parametrize(
        ("status", "kind", "code", "text"), DENIALS.values(), ids=DENIALS.keys()
    )
    def test_a_denial_becomes_the_api_servers_error(
        self,
        setup: Setup,
        phase: Phase,
        status: dict[str, object],
        kind: type[ApiError],
        code: int,
        text: str,
    ) -> None:
        setup.register("guard", phase, deny(**status))
        error = refusal(lambda: setup.client().create(CONFIG_MAPS, a_config_map()))
        assert type(error) is kind
        assert error.code == code
        assert error.message == f'admission webhook "guard.example.com" denied the request{text}'
        assert setup.cluster.store.select(CONFIG_MAPS, None)[0] == []

    def test_details_pass_through(self, setup: Setup) -> None:
        causes = [{"reason": "QuotaExceeded", "field": "p1/cpu", "message": "m"}]
        details = {"name": "web-1", "kind": "pods", "causes": causes, "retryAfterSeconds": 1}
        status = {"message": "busy", "code": 429, "reason": "TooManyRequests", "details": details}
        setup.register("guard", "validating", deny(**status))
        error = refusal(lambda: setup.client().create(PODS, a_pod()), TooManyRequestsError)
        assert (error.details, error.retry_after) == (details, 1)

    def test_a_code_that_cannot_be_written_is_an_internal_error(self, setup: Setup) -> None:
        setup.register("guard", "validating", deny(message="no", code=1000))
        error = refusal(lambda: setup.client().create(PODS, a_pod()), InternalError)
        assert error.code == 500

    def test_a_status_says_nothing_when_the_answer_is_yes(self, setup: Setup) -> None:
        said = {"allowed": True, "status": {"code": 403, "message": "ignored"}}
        setup.register("guard", "validating", lambda asked: answer(asked, said))
        setup.client().create(CONFIG_MAPS, a_config_map())


GARBAGE: dict[str, tuple[Responder, str]] = {
    "an empty answer": (
        lambda _: Reply(headers={"Content-Type": "text/plain"}),
        "failed to call webhook: 0-length response with status code: 200 and content type: ",
    ),
    "no JSON": (
        lambda _: Reply(b"<html>"),
        "failed to call webhook: couldn't get version/kind; json parse error: ",
    ),
    "another uid": (
        lambda asked: answer(asked, {"uid": "another", "allowed": True}),
        "received invalid webhook response: expected response.uid=",
    ),
    "an error": (
        lambda _: Reply(status=500),
        'failed to call webhook: an error on the server ("unknown") has prevented the',
    ),
    "no answer": (lambda _: Reply(hang_up=True), 'failed to call webhook: Post "https://'),
}


class TestFailures:
    @pytest.mark.parametrize("phase", ["mutating", "validating"])
    @pytest.mark.parametrize(("answering", "text"), GARBAGE.values(), ids=GARBAGE.keys())
    def test_a_failed_call_fails_the_request(
        self, setup: Setup, phase: Phase, answering: Responder, text: str
    ) -> None:
        setup.register("guard", phase, answering)
        error = refusal(lambda: setup.client().create(PODS, a_pod()), InternalError)
        prefix = 'Internal error occurred: failed calling webhook "guard.example.com": '
        assert error.message.startswith(prefix + text)
        assert error.code == 500

    @pytest.mark.parametrize("phase", ["mutating", "validating"])
    @pytest.mark.parametrize(("answering", "text"), GARBAGE.values(), ids=GARBAGE.keys())
    def test_a_failed_call_may_be_ignored(
        self, setup: Setup, phase: Phase, answering: Responder, text: str
    ) -> None:
        del text
        setup.register("guard", phase, answering, failure_policy="Ignore")
        setup.client().create(PODS, a_pod())

    def test_a_patch_from_a_validating_webhook_fails_the_request(self, setup: Setup) -> None:
        setup.register("guard", "validating", patch({"op": "add", "path": "/a", "value": 1}))
        error = refusal(lambda: setup.client().create(PODS, a_pod()), InternalError)
        assert "validating webhook may not return response.patch" in error.message

    def test_a_webhook_that_is_too_slow_fails_the_request(self, setup: Setup) -> None:
        done = threading.Event()

        def slow(asked: ReceivedReview) -> Reply:
            done.wait(5)
            return allow(asked)

        setup.register("guard", "validating", slow, timeout_seconds=0.05)
        error = refusal(lambda: setup.client().create(PODS, a_pod()), InternalError)
        done.set()
        assert error.message.endswith('?timeout=1s": context deadline exceeded')

    @pytest.mark.parametrize("effects", ["Some", "Unknown"])
    def test_a_dry_run_is_refused_when_a_webhook_has_side_effects(
        self, setup: Setup, effects: str
    ) -> None:
        setup.register("guard", "validating", allow, side_effects=effects)
        error = refusal(lambda: setup.client().create(PODS, a_pod(), dry_run=True), BadRequestError)
        assert error.message == 'admission webhook "guard.example.com" does not support dry run'
        assert setup.hooks.asked == []

    @pytest.mark.parametrize("effects", ["None", "NoneOnDryRun"])
    def test_a_dry_run_says_so(self, setup: Setup, effects: str) -> None:
        setup.register("guard", "validating", allow, side_effects=effects)
        setup.client().create(PODS, a_pod(), dry_run=True)
        assert setup.hooks.asked[0].request["dryRun"] is True
        assert setup.cluster.store.select(PODS, None)[0] == []


class TestValidating:
    def test_webhooks_are_asked_at_the_same_time(self, setup: Setup) -> None:
        together = threading.Barrier(3, timeout=5)

        def meet(asked: ReceivedReview) -> Reply:
            together.wait()
            return allow(asked)

        for name in ("one", "two", "three"):
            setup.register(name, "validating", meet)
        setup.client().create(CONFIG_MAPS, a_config_map())
        assert len(setup.hooks.asked) == 3

    def test_the_refusal_that_arrives_first_is_the_answer(self, setup: Setup) -> None:
        first_is_out = threading.Event()

        def slow(asked: ReceivedReview) -> Reply:
            first_is_out.wait(5)
            return deny(message="slow", code=403)(asked)

        setup.register("slow", "validating", slow)
        setup.register("fast", "validating", deny(message="fast", code=403))
        setup.register("fine", "validating", allow)
        passage = setup.passage()
        waiter = threading.Timer(0.2, first_is_out.set)
        waiter.start()
        error = refusal(lambda: setup.client(passage).create(PODS, a_pod()), ForbiddenError)
        waiter.join()
        assert error.message.endswith("denied the request: fast")
        assert len(setup.hooks.asked) == 3

    def test_every_call_has_a_uid_of_its_own(self, setup: Setup) -> None:
        setup.register("one", "mutating", allow)
        setup.register("two", "validating", allow)
        for name in ("a", "b"):
            setup.client().create(CONFIG_MAPS, a_config_map(name))
        assert len({asked.uid for asked in setup.hooks.asked}) == 4


class TestWhatIsSaidBeside:
    def test_warnings_and_audit_annotations_are_kept(self, setup: Setup) -> None:
        for name, phase in (("one", "mutating"), ("two", "validating")):
            said = {"allowed": True, "warnings": [name], "auditAnnotations": {"decision": name}}
            setup.register(name, phase, lambda asked, said=said: answer(asked, said))  # type: ignore[misc,arg-type]
        passage = setup.passage()
        setup.client(passage).create(CONFIG_MAPS, a_config_map())
        assert passage.warnings == ["one", "two"]
        assert passage.audit == {
            "one.example.com/decision": "one",
            "two.example.com/decision": "two",
        }

    def test_a_refusal_may_warn_too(self, setup: Setup) -> None:
        said = {"allowed": False, "warnings": ["careful"]}
        setup.register("one", "validating", lambda asked: answer(asked, said))
        passage = setup.passage()
        refusal(lambda: setup.client(passage).create(CONFIG_MAPS, a_config_map()))
        assert passage.warnings == ["careful"]

    def test_the_request_says_which_user_asks_and_how(self, setup: Setup) -> None:
        setup.register("one", "validating", allow)
        options = {"fieldManager": "kubectl-create", "fieldValidation": "Strict"}
        client = setup.client(setup.passage(options))
        client.create(CONFIG_MAPS, a_config_map())
        client.delete(CONFIG_MAPS, "notes", namespace="team-a")
        created, deleted = (asked.request for asked in setup.hooks.asked)
        assert created["userInfo"] == {"username": "alice", "groups": ["devs"]}
        base = {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"}
        assert created["options"] == {**base, **options}
        assert deleted["options"] == {**base, "kind": "DeleteOptions"}


class TestReviews:
    """What webhooks see of pods and bindings, as recorded from a control plane."""

    def test_a_pod_before_and_after_it_is_named(self, setup: Setup) -> None:
        setup.register("early", "mutating", allow)
        setup.register("late", "validating", allow)
        setup.client().create(PODS, a_pod(metadata={"name": "", "generateName": "web-"}))
        early, late = (setup.asked(name)[0].request for name in ("early", "late"))
        assert "name" not in early
        assert early["oldObject"] is None
        assert "uid" not in meta(mapping(early, "object"))
        assert str(late["name"]).startswith("web-")
        assert meta(mapping(late, "object"))["uid"] == "uid-1"

    def test_a_bind(self, setup: Setup) -> None:
        pod = FakeClient(setup.cluster).create(PODS, a_pod())
        stamp = {"op": "add", "path": "/metadata/annotations", "value": {"guarded": "7"}}
        pin = {"op": "add", "path": "/metadata/uid", "value": pod.uid}
        setup.register("stamp", "mutating", patch(stamp, pin))
        setup.register("guard", "validating", allow)
        setup.client().bind(a_binding())
        request = setup.asked("guard")[0].request
        binding_kind = {"group": "", "version": "v1", "kind": "Binding"}
        pods = {"group": "", "version": "v1", "resource": "pods"}
        assert (request["kind"], request["resource"]) == (binding_kind, pods)
        assert (request["requestKind"], request["requestResource"]) == (binding_kind, pods)
        assert request["subResource"] == request["requestSubResource"] == "binding"
        assert meta(mapping(request, "object"))["uid"] == pod.uid
        bound = FakeClient(setup.cluster).get(PODS, "web-1", namespace="team-a")
        assert meta(bound)["annotations"] == {"guarded": "7"}

    def test_a_resize(self, setup: Setup) -> None:
        FakeClient(setup.cluster).create(PODS, a_pod(requests={"cpu": "1"}))
        setup.register("guard", "validating", allow)
        path = "/spec/containers/0"
        change = {"op": "replace", "path": path, "value": a_container(requests={"cpu": "2"})}
        setup.client().patch(PODS, "web-1", [change], namespace="team-a", subresource="resize")
        request = setup.asked("guard")[0].request
        assert (request["subResource"], request["operation"]) == ("resize", "UPDATE")
        assert "'cpu': '2'" in str(mapping(request, "object", "spec"))
        assert "'cpu': '1'" in str(mapping(request, "oldObject", "spec"))


def rule(operations: str = "*", resources: str = "*", **fields: object) -> Rule:
    made = Rule(frozenset(operations.split()), frozenset(resources.split()))
    return replace(made, **fields)  # type: ignore[arg-type] # the table's


MATCHES: dict[str, tuple[Rule, WriteRequest, bool]] = {
    "anything": (rule("*", "*/*"), a_write(subresource="binding"), True),
    "a star is not for subresources": (rule(), a_write(subresource="binding"), False),
    "a star is for resources": (rule(), a_write(), True),
    "pods": (rule(resources="pods jobs"), a_write(), True),
    "pods are not their binding": (rule(resources="pods"), a_write(subresource="binding"), False),
    "their binding": (rule(resources="pods/binding"), a_write(subresource="binding"), True),
    "all of theirs": (rule(resources="pods/*"), a_write(subresource="resize"), True),
    "any status": (rule(resources="*/status"), a_write(subresource="status"), True),
    "the old bindings": (rule(resources="bindings"), a_write(kind=BINDINGS), True),
    "another operation": (rule("UPDATE DELETE"), a_write(), False),
    "another group": (rule(groups=frozenset({"batch"})), a_write(), False),
    "the core group": (rule(groups=frozenset({""})), a_write(), True),
    "another version": (rule(versions=frozenset({"v2"})), a_write(), False),
    "namespaced": (rule(scope="Namespaced"), a_write(), True),
    "not namespaced": (rule(scope="Namespaced"), a_write(kind=NODES, namespace=""), False),
    "of the cluster": (rule(scope="Cluster"), a_write(kind=NODES, namespace=""), True),
}


@pytest.mark.parametrize(("rule", "request_", "expected"), MATCHES.values(), ids=MATCHES.keys())
def test_a_rule_is_about_some_requests(rule: Rule, request_: WriteRequest, expected: bool) -> None:
    assert rule.matches(request_) is expected


OWN: Object = {"metadata": {"name": "team-a", "labels": {"mode": "own"}}}
SELECTIONS: dict[str, tuple[str, WriteRequest, bool]] = {
    "no selector": ("", a_write(namespace="other"), True),
    "an opted-in namespace": ("mode in (deferred,shadow)", a_write(), True),
    "another namespace": ("mode in (deferred,shadow)", a_write(namespace="other"), False),
    "objects outside of namespaces": ("mode=x", a_write(kind=NODES, namespace=""), True),
    "a namespace by its own labels": (
        "mode=own",
        a_write(kind=NAMESPACES, new=OWN, namespace=""),
        True,
    ),
    "a namespace by other labels": (
        "mode=x",
        a_write(kind=NAMESPACES, new=OWN, namespace=""),
        False,
    ),
}


@pytest.mark.parametrize(
    ("selector", "request_", "expected"), SELECTIONS.values(), ids=SELECTIONS.keys()
)
def test_a_namespace_selector_looks_at_the_namespace(
    caller: WebhookCaller, selector: str, request_: WriteRequest, expected: bool
) -> None:
    labels = {"team-a": {"mode": "deferred"}}
    hook = Webhook("x", "https://x", "validating", (ANY,), namespace_selector=selector)
    chain = AdmissionChain(
        [hook], caller, namespace_labels=lambda namespace: labels.get(namespace, {})
    )
    assert chain.matching(request_, "validating") == ([hook] if expected else [])
    assert chain.matching(request_, "mutating") == []
    chain.close()


OBJECTS: dict[str, tuple[dict[str, str] | None, dict[str, str] | None, bool]] = {
    "as it becomes": ({"a": "b"}, None, True),
    "as it was": ({"a": "c"}, {"a": "b"}, True),
    "neither": ({"a": "c"}, {"a": "c"}, False),
    "no label": ({}, None, False),
    "what goes": (None, {"a": "b"}, True),
}


@pytest.mark.parametrize(("new", "old", "expected"), OBJECTS.values(), ids=OBJECTS)
def test_an_object_selector_looks_at_the_object_as_it_was_and_becomes(
    caller: WebhookCaller,
    new: dict[str, str] | None,
    old: dict[str, str] | None,
    expected: bool,
) -> None:
    hook = Webhook("x", "https://x", "validating", (ANY,), object_selector="a=b")
    chain = AdmissionChain([hook], caller, namespace_labels=lambda _: {})
    states = [
        None if labels is None else {"metadata": {"name": "x", "labels": labels}}
        for labels in (new, old)
    ]
    request = a_write(new=states[0], old=states[1])
    assert chain.matching(request, "validating") == ([hook] if expected else [])
    chain.close()


def test_a_condition_skips_a_webhook(setup: Setup) -> None:
    def has_node(request: WriteRequest) -> bool:
        return "nodeName" in mapping(request.new, "spec")

    setup.register("assigned", "validating", allow, condition=has_node)
    setup.client().create(PODS, a_pod(name="waiting"))
    setup.client().create(PODS, a_pod(name="placed", node="n1"))
    assert [asked.request["name"] for asked in setup.hooks.asked] == ["placed"]


BAD_HOOKS = {
    "not https": (Webhook("x", "http://x", "mutating", (ANY,)), "must begin with https://"),
    "a selector": (
        Webhook("x", "https://x", "mutating", (ANY,), namespace_selector="a in ("),
        "unable to parse requirement",
    ),
    "a selector of objects": (
        Webhook("x", "https://x", "mutating", (ANY,), object_selector="a in ("),
        "unable to parse requirement",
    ),
}


@pytest.mark.parametrize(("hook", "text"), BAD_HOOKS.values(), ids=BAD_HOOKS.keys())
def test_a_webhook_that_cannot_be_asked_is_not_registered(
    caller: WebhookCaller, hook: Webhook, text: str
) -> None:
    with pytest.raises(ValueError, match=text):
        AdmissionChain([hook], caller, namespace_labels=lambda _: {})


def test_a_status_write_is_masked_as_a_webhook_says(setup: Setup) -> None:
    quota = FakeClient(setup.cluster).create(RESOURCE_QUOTAS, a_quota())
    setup.register("mask", "mutating", patch({"op": "remove", "path": "/status/hard/cpu"}))
    status = {"hard": {"cpu": "2", "pods": "5"}, "used": {}}
    written = setup.client().update_status(RESOURCE_QUOTAS, {**quota.object, "status": status})
    assert written.object["status"] == {"hard": {"pods": "5"}, "used": {}}
    again = setup.client().update_status(
        RESOURCE_QUOTAS,
        {**quota.object, "metadata": {"name": "team-a", "namespace": "team-a"}, "status": status},
    )
    assert again.resource_version == written.resource_version
