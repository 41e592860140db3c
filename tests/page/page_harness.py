"""A page over the caches of a controller and a fake cluster, whose API server knows some tokens."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

from flask import Flask
from werkzeug.test import TestResponse

from tests.controllers.controller_harness import ControllerHarness, new_harness
from tests.reactions import Call, Proceed, ReactiveClient
from webhook.config import Configuration
from webhook.controllers.overview import ClusterOverview
from webhook.controllers.queue.controller import ReleaseOptions
from webhook.jsonfields.encoding import encode_json
from webhook.kube.api import Object, Revision
from webhook.page import PageParts, UsageHistory, create_page
from webhook.page.access import (
    SUBJECT_ACCESS_REVIEWS,
    TOKEN_REVIEWS,
    Authenticator,
    Authorizer,
)
from webhook.page.explaining import ExplainSettings, PodExplainer

ALL = ""
"""Every namespace, as a right."""
CREDENTIAL = "authentication.kubernetes.io/credential-id"


@dataclass
class Users:
    """Tokens and rights that the API server of a test knows."""

    names: dict[str, str] = field(default_factory=dict)
    """Token → user."""
    scopes: dict[str, str] = field(default_factory=dict)
    """Token → what narrows the rights of its user, in its extra fields."""
    lists: dict[str, set[tuple[str, str]]] = field(default_factory=dict)
    """User → (namespace, resource) that it may list."""

    def add(self, name: str, *namespaces: str, resources: tuple[str, ...] = ()) -> str:
        """Add a user that may list quotas and pods, or `resources`; return its token."""
        wanted = resources or ("resourcequotas", "pods")
        self.names[f"token-of-{name}"] = name
        self.lists[name] = {(place, what) for place in namespaces for what in wanted}
        return f"token-of-{name}"

    def review(self, call: Call, _proceed: Proceed) -> Revision:
        """Answer a review."""
        spec = call.body["spec"]
        status = self._token(spec) if call.kind == TOKEN_REVIEWS else self._access(spec)
        data = encode_json({**call.body, "status": status})
        return Revision(key="", uid="", resource_version=0, data=data)

    def _token(self, spec: Mapping[str, Any]) -> Object:
        name = self.names.get(spec["token"])
        if name is None:
            return {"authenticated": False, "error": "unknown"}
        extra = {"scope": [self.scopes.get(spec["token"], "all")], CREDENTIAL: [spec["token"]]}
        user = {"username": name, "groups": ["system:authenticated"], "extra": extra}
        return {"authenticated": True, "user": user}

    def _access(self, spec: Mapping[str, Any]) -> Object:
        attributes = spec["resourceAttributes"]
        assert (attributes["verb"], attributes.get("group", "")) == ("list", "")
        assert spec["groups"] == ["system:authenticated"]
        assert self.names[spec["extra"][CREDENTIAL][0]] == spec["user"]
        if spec["extra"]["scope"] != ["all"]:
            return {"allowed": False}
        wanted = (attributes.get("namespace", ALL), attributes["resource"])
        mine = self.lists[spec["user"]]
        return {"allowed": wanted in mine or (ALL, attributes["resource"]) in mine}


@dataclass
class PageHarness:
    """The page, its cluster and its users."""

    controller: ControllerHarness
    users: Users
    app: Flask
    history: UsageHistory
    overview: ClusterOverview
    clock: list[float]
    read_as: list[str]
    """Tokens with which pods were explained."""

    @property
    def reviews(self) -> ReactiveClient:
        """The client with which tokens and rights are reviewed."""
        return self.controller.client

    def get(self, path: str, token: str = "", **headers: str) -> TestResponse:
        """Get a path as the user of a token."""
        shown = {"Authorization": f"Bearer {token}"} if token else {}
        return self.app.test_client().get(path, headers={**shown, **headers})

    def values(self, path: str, token: str) -> dict[str, Any]:
        """Return the values at a path, which has to be answered."""
        answer = self.get(path, token)
        assert answer.status_code == 200, answer.text
        return cast("dict[str, Any]", answer.json)

    def sample(self) -> None:
        """Take one sample of the history."""
        ledgers = {name: self.overview.ledger(name) for name in self.overview.namespaces()}
        self.history.record(
            {name: {} if one is None else one.accounts for name, one in ledgers.items()}
        )


@contextmanager
def new_page(*objects: Mapping[str, object], **fields: object) -> Iterator[PageHarness]:
    """Set up a page over a counted cluster, in which `team-a` has opted in."""
    with new_harness(*objects, **fields) as controller:  # type: ignore[arg-type]
        controller.step()
        users, clock = Users(), [5000.0]
        for kind in (TOKEN_REVIEWS, SUBJECT_ACCESS_REVIEWS):
            controller.client.on("create", kind, users.review)
        read_as: list[str] = []

        @contextmanager
        def client_of(token: str) -> Iterator[ReactiveClient]:
            read_as.append(token)
            yield controller.client

        overview = ClusterOverview(
            controller.controller.usage_cache,
            controller.ledgers,
            controller.store,
            controller.context.timings,
            ReleaseOptions(policy=lambda: controller.policy),
        )
        history = UsageHistory(lambda: clock[0])
        settings = ExplainSettings(
            Configuration, "deferred-quota-system", lambda: overview.pod_count
        )
        parts = PageParts(
            overview=overview,
            history=history,
            authenticator=Authenticator(controller.client, lambda: clock[0]),
            authorizer=Authorizer(controller.client, lambda: clock[0]),
            explainer=PodExplainer(client_of, settings),
            is_leader=controller.controller.is_leader,
            metrics=controller.metrics.page,
            clock=time.monotonic,
        )
        made = create_page(parts)
        yield PageHarness(controller, users, made, history, overview, clock, read_as)
