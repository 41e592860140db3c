"""The admission chain as the API server runs it: calls, their order, and the answers.

Mutating webhooks are asked one after another, each seeing what the ones before it made of the
object; validating webhooks are asked at the same time, and the first refusal to arrive is the
answer. The rules of the kinds lie between the two phases.

Source: kubernetes v1.36, apiserver/pkg/admission/plugin/webhook (mutating/dispatcher.go,
validating/dispatcher.go, errors/statuserror.go, predicates), and measured on a control plane.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from typing import Final, Literal

from webhook.fakecluster.admission.webhook_client import CallError, WebhookCaller
from webhook.fakecluster.admission.webhook_patches import apply_webhook_patch
from webhook.fakecluster.admission.webhook_reviews import (
    InvalidAnswerError,
    Phase,
    UserInfo,
    WebhookResponse,
    read_response,
    write_review,
)
from webhook.fakecluster.storage.admission_hook import WriteRequest
from webhook.kube.api import ApiError, BadRequestError, InternalError, Kind, Object
from webhook.kube.kinds import NAMESPACES
from webhook.kube.selectors import parse_labels
from webhook.state.webhook_selectors import WebhookSelector

log = logging.getLogger(__name__)

Defaults = Callable[[Kind, Object], Object]
"""Fills in what the API fills in when it decodes an object of a kind."""


@dataclass(frozen=True, slots=True)
class Rule:
    """Requests of which a webhook is asked; "*" stands for anything.

    `resources` are plurals, with a subresource after a slash: "pods", "pods/binding", "pods/*",
    "*/status". "*" is every resource without its subresources, "*/*" is everything.
    """

    operations: frozenset[str]
    resources: frozenset[str]
    groups: frozenset[str] = frozenset({"*"})
    versions: frozenset[str] = frozenset({"*"})
    scope: Literal["Namespaced", "Cluster", "*"] = "*"

    def matches(self, request: WriteRequest) -> bool:
        """Return whether the rule is about a request."""
        resource = request.resource
        place = "Namespaced" if request.namespace and resource != NAMESPACES else "Cluster"
        return (
            _any_of(self.operations, request.operation)
            and _any_of(self.groups, resource.group)
            and _any_of(self.versions, resource.version)
            and self.scope in ("*", place)
            and not self.resources.isdisjoint(_spellings(resource.plural, request.subresource))
        )


def _any_of(wanted: frozenset[str], value: str) -> bool:
    return "*" in wanted or value in wanted


def _spellings(plural: str, subresource: str) -> tuple[str, ...]:
    if not subresource:
        return plural, "*", "*/*", f"{plural}/*"
    return f"{plural}/{subresource}", f"{plural}/*", f"*/{subresource}", "*/*"


@dataclass(frozen=True, slots=True)
class Webhook:
    """One registered webhook."""

    name: str
    """As error messages give it."""
    url: str
    """Where it is, `https://`; the timeout is added to it."""
    phase: Phase
    """When it is asked."""
    rules: tuple[Rule, ...]
    """What it is asked about; any of them will do."""
    failure_policy: Literal["Fail", "Ignore"] = "Fail"
    """What a call without a usable answer means."""
    timeout_seconds: float = 10
    side_effects: Literal["None", "NoneOnDryRun", "Some", "Unknown"] = "None"
    """With "Some" or "Unknown" a dry run is refused."""
    namespace_selector: str = ""
    """A label selector on the request's namespace; empty selects all."""
    object_selector: str = ""
    """A label selector on the object, new or old; empty selects all."""
    condition: Callable[[WriteRequest], bool] | None = None
    """Stands for `matchConditions`; False skips the webhook."""
    reinvocation: Literal["Never", "IfNeeded"] = "Never"
    """With "IfNeeded" a mutating webhook is asked again if a later one changed the object."""


class AdmissionChain:
    """The registered webhooks of one cluster. Thread-safe."""

    def __init__(
        self,
        hooks: Sequence[Webhook],
        caller: WebhookCaller,
        *,
        namespace_labels: Callable[[str], Mapping[str, str]],
        defaults: Defaults = lambda kind, obj: obj,  # noqa: ARG005 - nothing is filled in
    ) -> None:
        """Register webhooks.

        Args:
            hooks: In the order in which mutating ones are asked.
            caller: Carries the calls.
            namespace_labels: Reads the labels of a namespace; empty if there is none.
            defaults: Fills in API defaults, before the first webhook and after every patch.

        Raises:
            ValueError: A webhook's URL is not https, or a selector of it cannot be read.
        """
        for hook in hooks:
            if not hook.url.startswith("https://"):
                raise ValueError(f"webhook {hook.name}: the URL must begin with https://")
        self._hooks = tuple((hook, *_selectors(hook)) for hook in hooks)
        self._namespace_labels = namespace_labels
        self.caller: Final = caller
        self.defaults: Final = defaults
        self.pool: Final = ThreadPoolExecutor(max_workers=32, thread_name_prefix="admission")

    def run(self, user: UserInfo, options: Mapping[str, object] | None = None) -> AdmissionRun:
        """Return the chain as one API request of one user passes it.

        Args:
            user: Who asks.
            options: What the request's options say beyond what the cluster knows: field manager
                and field validation.
        """
        return AdmissionRun(self, user, options or {})

    def close(self) -> None:
        """Stop the threads and close the connections."""
        self.pool.shutdown(wait=True)
        self.caller.close()

    def matching(self, request: WriteRequest, phase: Phase) -> list[Webhook]:
        """Return the webhooks that want to see a request, in order."""
        return [
            hook
            for hook, namespaces, objects in self._hooks
            if hook.phase == phase
            and any(rule.matches(request) for rule in hook.rules)
            and self._selects(namespaces, request)
            and _selects_object(objects, request)
            and (hook.condition is None or hook.condition(request))
        ]

    def _selects(self, selector: WebhookSelector, request: WriteRequest) -> bool:
        if selector.is_empty or not (request.namespace or request.resource == NAMESPACES):
            return True
        return selector.matches(self._labels_for(request))

    def _labels_for(self, request: WriteRequest) -> Mapping[str, str]:
        if request.resource != NAMESPACES:
            return self._namespace_labels(request.namespace)
        return _labels_of(request.new or request.old or {})


def _selects_object(selector: WebhookSelector, request: WriteRequest) -> bool:
    """Return whether the object is selected, as it was or as it will be."""
    states = [each for each in (request.new, request.old) if each is not None]
    return selector.is_empty or any(selector.matches(_labels_of(each)) for each in states)


def _labels_of(obj: Mapping[str, object]) -> Mapping[str, str]:
    meta = obj.get("metadata")
    labels = meta.get("labels") if isinstance(meta, Mapping) else None
    return labels if isinstance(labels, Mapping) else {}


def _selectors(hook: Webhook) -> tuple[WebhookSelector, WebhookSelector]:
    try:
        namespaces, objects = map(parse_labels, (hook.namespace_selector, hook.object_selector))
    except BadRequestError as err:
        raise ValueError(f"webhook {hook.name}: {err.message}") from err
    return WebhookSelector(namespaces), WebhookSelector(objects)


class AdmissionRun:
    """The chain for one API request: an `Admission`, and what the webhooks said beside the verdict.

    Attributes:
        warnings: In the order in which they came.
        audit: Audit annotations, keys with the webhook's name before them.
    """

    def __init__(
        self, chain: AdmissionChain, user: UserInfo, options: Mapping[str, object]
    ) -> None:
        """Begin with nothing said."""
        self._chain = chain
        self._user = user
        self._options = options
        self.warnings: Final[list[str]] = []
        self.audit: Final[dict[str, str]] = {}

    def mutate(self, request: WriteRequest) -> Object | None:
        """Ask the mutating webhooks in order; return what they made of the object.

        Raises:
            ApiError: One refuses, fails, or answers with a patch that does not apply.
        """
        if request.new is not None:
            request = replace(request, new=self._chain.defaults(request.kind, request.new))
        hooks = self._chain.matching(request, "mutating")
        left: list[Object | None] = []
        for hook in hooks:
            request = self._mutated(hook, request)
            left.append(request.new)
        for hook, seen in zip(hooks, left, strict=True):
            if hook.reinvocation == "IfNeeded" and seen != request.new:
                request = self._mutated(hook, request)
        return request.new

    def _mutated(self, hook: Webhook, request: WriteRequest) -> WriteRequest:
        answer = self._ask(hook, request)
        if answer is None:
            return request
        self._record(hook, answer)
        _check_allowed(hook, answer)
        if not answer.patch:
            return request
        if request.new is None:
            raise InternalError.of(
                f'admission webhook "{hook.name}" attempted to modify the object, which is not '
                "supported for this operation"
            )
        changed = apply_webhook_patch(request.kind, request.new, answer.patch)
        return replace(request, new=self._chain.defaults(request.kind, changed))

    def validate(self, request: WriteRequest) -> None:
        """Ask the validating webhooks at the same time; the first refusal counts.

        Raises:
            ApiError: One refuses, or fails.
        """
        hooks = self._chain.matching(request, "validating")
        if len(hooks) == 1:
            self._verdict(hooks[0], self._ask(hooks[0], request))
            return
        asked = {self._chain.pool.submit(self._ask, hook, request): hook for hook in hooks}
        refusals = [refusal for refusal in self._arrivals(asked) if refusal is not None]
        if refusals:
            raise refusals[0]

    def _arrivals(
        self, asked: Mapping[Future[WebhookResponse | None], Webhook]
    ) -> list[ApiError | None]:
        """Return what came of the calls, in the order in which they came back."""
        outcomes: list[ApiError | None] = []
        pending = set(asked)
        while pending:
            done, pending = wait(pending, return_when=FIRST_COMPLETED)
            outcomes += [self._outcome(asked[call], call) for call in done]
        return outcomes

    def _outcome(self, hook: Webhook, call: Future[WebhookResponse | None]) -> ApiError | None:
        try:
            self._verdict(hook, call.result())
        except ApiError as refusal:
            return refusal
        return None

    def _verdict(self, hook: Webhook, answer: WebhookResponse | None) -> None:
        if answer is not None:
            self._record(hook, answer)
            _check_allowed(hook, answer)

    def _ask(self, hook: Webhook, request: WriteRequest) -> WebhookResponse | None:
        """Return what a webhook answers; None if it failed and that is to be ignored."""
        if request.dry_run and hook.side_effects not in ("None", "NoneOnDryRun"):
            raise BadRequestError(f'admission webhook "{hook.name}" does not support dry run')
        uid = str(uuid.uuid4())
        full = replace(request, options={**request.options, **self._options_for(request)})
        body = write_review(full, uid=uid, user=self._user)
        try:
            data = self._chain.caller.post(hook.url, body, timeout_seconds=hook.timeout_seconds)
            return read_response(data, uid=uid, phase=hook.phase)
        except (CallError, InvalidAnswerError) as err:
            _apply_failure_policy(hook, err)
            return None

    def _options_for(self, request: WriteRequest) -> Mapping[str, object]:
        return {} if request.operation == "DELETE" else self._options

    def _record(self, hook: Webhook, answer: WebhookResponse) -> None:
        self.warnings.extend(answer.warnings)
        self.audit.update({f"{hook.name}/{key}": text for key, text in answer.audit.items()})


def _apply_failure_policy(hook: Webhook, error: CallError | InvalidAnswerError) -> None:
    detail = str(error)
    if not detail.startswith(("failed to call webhook", "received invalid webhook response")):
        detail = f"failed to call webhook: {detail}"
    if hook.failure_policy == "Fail":
        raise InternalError.of(f'failed calling webhook "{hook.name}": {detail}') from error
    log.warning("webhook failed, ignored", extra={"webhook": hook.name, "error": detail})


_HIGHEST_CODE: Final = 999


def _check_allowed(hook: Webhook, answer: WebhookResponse) -> None:
    """Turn a denial into the API server's error.

    Source: kubernetes v1.36, apiserver/pkg/admission/plugin/webhook/errors/statuserror.go.
    """
    if answer.allowed:
        return
    status = dict(answer.status)
    said = next((text for name in ("message", "reason") if (text := status.get(name))), None)
    explained = f": {said}" if isinstance(said, str) else " without explanation"
    code = status.get("code")
    if not isinstance(code, int) or isinstance(code, bool) or code < 400:
        code = 400
    if code > _HIGHEST_CODE:
        # a real API server fails to write such a status and drops the connection
        raise InternalError.of(f'webhook "{hook.name}" answered with the status code {code}')
    status["code"] = code
    status["message"] = f'admission webhook "{hook.name}" denied the request{explained}'
    raise ApiError.from_status(status)
