"""Installing: in the right order, once, and never by halves without saying so."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from tests.builders import a_pod
from tests.install.twin import HERE, INSIDE, SYSTEM, THERE, Twin, leading, registrations, run
from tests.operations.healthy import a_lease
from tests.reactions import Call, Proceed, Reaction, in_turn
from webhook.install import InstallError
from webhook.install.certificates import certificates
from webhook.install.readiness import CONFIGURATION_ANNOTATION as ANNOTATION
from webhook.kube.api import (
    CONFIG_MAPS,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    PODS,
    SECRETS,
    Kind,
    NotFoundError,
    Object,
    Revision,
    kind_of,
)
from webhook.state.well_known import INJECTED_ANNOTATIONS
from webhook.tls.bundles import certificate_set
from webhook.tls.called_names import REGISTRATIONS

GPU = (
    "apiVersion: deferredquota.io/v1alpha1\nkind: Configuration\n"
    "deferredResources: [requests.nvidia.com/gpu]\n"
)


def secret(twin: Twin, name: str) -> Any:
    return twin.api.get(SECRETS, name, namespace=SYSTEM)


def trusted(twin: Twin) -> set[str]:
    found = registrations(twin)
    return {entry["clientConfig"]["caBundle"] for each in found for entry in each["webhooks"]}


def test_beside_a_secret_of_cert_manager_nothing_is_written() -> None:
    twin = Twin()
    twin.api.create(
        NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}}
    )
    note = {"cert-manager.io/certificate-name": "deferred-quota-webhook"}
    metadata = {"name": "deferred-quota-tls", "namespace": SYSTEM, "annotations": note}
    twin.api.create(SECRETS, {"apiVersion": "v1", "kind": "Secret", "metadata": metadata})
    with pytest.raises(InstallError, match="is written by cert-manager, for its Certificate"):
        run(twin)
    assert twin.written == []


def test_nothing_is_asked_before_a_webhook_answers_and_nothing_hidden_before_it_is_guarded() -> (
    None
):
    twin = Twin()
    run(twin)
    order = [line.removeprefix("apply ") for line in twin.written]
    assert order[:3] == [
        f"Namespace {SYSTEM}",
        "CustomResourceDefinition quotaledgers.deferredquota.io",
        "CustomResourceDefinition podgatings.deferredquota.io",
    ]
    secrets = order.index(f"Secret {SYSTEM}/deferred-quota-tls")
    deployment = order.index(f"Deployment {SYSTEM}/deferred-quota-webhook")
    guard = order.index("ValidatingWebhookConfiguration deferred-quota")
    mask = order.index("MutatingAdmissionPolicyBinding deferred-quota-mask")
    assert secrets < deployment < guard < mask


def test_the_api_server_trusts_what_the_webhook_serves() -> None:
    twin = Twin()
    run(twin)
    assert trusted(twin) == {secret(twin, "deferred-quota-tls")["data"]["ca.crt"]}


def test_a_second_time_changes_nothing() -> None:
    twin = Twin()
    changes, lines = run(twin)
    assert changes == sum(line.endswith(": created") for line in lines) == len(twin.written)
    before = list(twin.written)
    changes, lines = run(twin)
    assert changes == 0
    assert twin.written == before
    assert "certificates: kept" in lines


@pytest.mark.parametrize("url", ["", "https://192.0.2.7:9443"])
def test_a_dry_run_writes_nothing(url: str) -> None:
    twin = Twin()
    changes, lines = run(twin, dry_run=True, url=url)
    assert changes == sum("would be created" in line for line in lines) > 10
    assert twin.written == []
    assert [
        str(cast("Any", each)["metadata"]["name"]) for each in twin.api.list(NAMESPACES).items
    ] == []


def test_a_deployment_that_does_not_come_up_is_never_asked() -> None:
    twin = Twin()
    twin.available = False
    with pytest.raises(
        InstallError, match=r"deferred-quota-webhook: 0 of 3 replicas are available"
    ):
        run(twin)
    asked = ("WebhookConfiguration", "MutatingAdmissionPolicy")
    assert not any(kind in line for kind in asked for line in twin.written)
    twin.available = True
    run(twin, waits=False)
    assert "apply ValidatingWebhookConfiguration deferred-quota" in twin.written


def test_a_new_ca_is_trusted_before_it_is_served_with() -> None:
    twin = Twin()
    run(twin)
    now, first = (
        datetime.now(UTC),
        certificates(None, None, namespace=SYSTEM, now=datetime.now(UTC) - timedelta(days=500)),
    )
    long_ago = certificates(first.ca, first.tls, namespace=SYSTEM, now=now - timedelta(days=40))
    for each in (long_ago.ca, long_ago.tls):
        metadata: Any = each["metadata"]
        found = secret(twin, metadata["name"])
        twin.api.update(SECRETS, {**found, "data": each["data"]})
    twin.written.clear()
    _, lines = run(twin)
    assert any("two thirds of the life of the CA" in line for line in lines)
    serving = twin.written.index(f"apply Secret {SYSTEM}/deferred-quota-tls")
    for which in (
        "MutatingWebhookConfiguration deferred-quota",
        "MutatingWebhookConfiguration zz-deferred-quota-jobs",
        "ValidatingWebhookConfiguration deferred-quota",
    ):
        assert twin.written.index(f"patch {which}") < serving
    (bundle,) = trusted(twin)
    assert base64.b64decode(bundle).count(b"BEGIN CERTIFICATE") == 2


@pytest.mark.parametrize("is_injected", [False, True], ids=["ours", "of cert-manager"])
def test_after_the_loss_of_both_secrets_the_former_ca_stays_trusted(is_injected: bool) -> None:
    twin = Twin()
    run(twin)
    (before,) = trusted(twin)
    for kind, name in REGISTRATIONS if is_injected else ():
        found: Any = twin.api.get(kind, name)
        found["metadata"]["annotations"][INJECTED_ANNOTATIONS[0]] = f"{SYSTEM}/ca"
        twin.api.update(kind, found)
    for name in ("deferred-quota-ca", "deferred-quota-tls"):
        twin.api.delete(SECRETS, name, namespace=SYSTEM)
    run(twin)
    (after,) = trusted(twin)
    former = certificate_set(base64.b64decode(before))
    assert (former < certificate_set(base64.b64decode(after))) is not is_injected
    assert run(twin)[0] == 0


def test_the_mask_can_be_changed_and_changed_back() -> None:
    twin = Twin()
    run(twin, mask="policy")
    run(twin, mask="webhook")
    deleted = [line for line in twin.written if line.startswith("delete")]
    assert [line.rsplit(" ", 1)[1] for line in deleted] == ["deferred-quota-mask"] * 2
    entries = cast("Any", twin.api.get(MUTATING_WEBHOOKS, "deferred-quota"))["webhooks"]
    assert [each["name"].partition(".")[0] for each in entries] == ["stamp", "mask"]
    run(twin, mask="policy")
    entries = cast("Any", twin.api.get(MUTATING_WEBHOOKS, "deferred-quota"))["webhooks"]
    assert [each["name"].partition(".")[0] for each in entries] == ["stamp"]


@pytest.mark.parametrize("url", ["", "https://192.0.2.7:9443"])
def test_the_configuration_stays_until_another_is_given(url: str) -> None:
    twin = Twin()
    run(twin, configuration=OTHER, url=url)
    before = registrations(twin), masks(twin)
    assert "team-x" in str(before[0])
    assert "'requests.amd.com/gpu'" in str(before[1])
    assert run(twin, url=url)[0] == 0
    assert (registrations(twin), masks(twin)) == before
    found = cast("Any", twin.api.get(CONFIG_MAPS, "deferred-quota-config", namespace=SYSTEM))
    assert found["data"] == {"config.yaml": OTHER}


def masks(twin: Twin) -> list[Any]:
    kinds = ("MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding")
    version = "admissionregistration.k8s.io/v1"
    return [
        twin.api.get(kind_of(version, kind, namespaced=False), "deferred-quota-mask")
        for kind in kinds
    ]


HEAD = "apiVersion: deferredquota.io/v1alpha1\nkind: Configuration\n"
OTHER = (
    f"{HEAD}deferredResources: [requests.amd.com/gpu]\nexemptNamespaces: [kube-system, team-x]\n"
)


@dataclass
class Step:
    """A write of the mask policy, and what was rolled out at that moment."""

    hidden: set[str]
    left_out: set[str]
    configuration: str
    rolled_out: set[str]


class Watched(Twin):
    """A cluster that remembers what stood when the mask was written."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[Step] = []
        self._bound: Any = None

    def apply(self, kind: Kind, obj: Object, **options: Any) -> Revision:
        done = super().apply(kind, obj, **options)
        is_mask = "mask" in str(done.object["metadata"])
        if kind.kind == "MutatingAdmissionPolicyBinding" and is_mask:
            self._bound = done.object["spec"]
        if kind.kind == "MutatingAdmissionPolicy" and is_mask:
            self.steps.append(self._step(cast("Any", done.object)["spec"]))
        return done

    def _step(self, spec: Any) -> Step:
        expression = spec["variables"][0]["expression"]
        by_name = self._bound["matchResources"]["namespaceSelector"]["matchExpressions"][1]
        config: Any = self.api.get(CONFIG_MAPS, "deferred-quota-config", namespace=SYSTEM)
        return Step(
            set(re.findall(r"'([^']+/gpu)'", expression)),
            set(by_name["values"]),
            config["data"]["config.yaml"],
            {each["metadata"]["annotations"][ANNOTATION] for each in pod_templates(self)},
        )


def pod_templates(twin: Twin) -> list[Any]:
    kind = kind_of("apps/v1", "Deployment", namespaced=True)
    found: list[Any] = list(twin.api.list(kind).items)
    return [each["spec"]["template"] for each in found]


def test_pods_are_replaced_when_the_configuration_changes() -> None:
    twin = Watched()
    run(twin)
    before = {each["metadata"]["annotations"][ANNOTATION] for each in pod_templates(twin)}
    run(twin, configuration=GPU)
    after = {each["metadata"]["annotations"][ANNOTATION] for each in pod_templates(twin)}
    assert len(before) == len(after) == 1
    assert before != after


HOLDER = "deferred-quota-controller-2-7-0a1b2c3d"


def showing(*leases: Object | None) -> Reaction:
    """Show one Lease after another, and the last one from then on; None is that there is none."""
    left = list(leases)

    def react(call: Call, _proceed: Proceed) -> Object:
        lease = left.pop(0) if len(left) > 1 else left[0]
        if lease is None:
            raise NotFoundError.of(call.kind, call.key)
        return lease

    return react


LEADERLESS: Mapping[str, tuple[tuple[Object | None, ...], str]] = {
    "none has ever led": ((None,), "no controller leads"),
    "none took over": ((a_lease(HOLDER), a_lease("")), "no controller leads"),
    "the leader is gone": ((a_lease(HOLDER),), f"its holder {HOLDER} does not renew it"),
}


@pytest.mark.parametrize(("leases", "words"), LEADERLESS.values(), ids=LEADERLESS)
def test_controllers_on_standby_are_no_leader(
    leases: tuple[Object | None, ...], words: str
) -> None:
    twin = Twin()
    message = f"Lease {SYSTEM}/deferred-quota-controller: {words}; gave up after"
    with pytest.raises(InstallError, match=re.escape(message)):
        run(twin, lease=showing(*leases))
    assert not any("WebhookConfiguration" in each for each in twin.written)
    run(twin, lease=showing(*leases), waits=False)
    assert len(registrations(twin)) == 3


@pytest.mark.parametrize("former", [None, a_lease(""), a_lease(HOLDER)])
def test_a_controller_that_takes_over_is_waited_for(former: Object | None) -> None:
    leader = leading()
    _, lines = run(Twin(), lease=in_turn([showing(former)] * 2 + [leader] * 2))
    assert "controller: waiting until one leads" in lines


def test_the_mask_hides_only_what_former_and_new_processes_charge_until_all_are_new() -> None:
    twin = Watched()
    run(twin, configuration=GPU)
    (first,) = twin.steps
    assert (first.hidden, first.configuration) == ({"requests.nvidia.com/gpu"}, GPU)
    twin.steps.clear()
    run(twin, configuration=OTHER)
    narrowed, last = twin.steps
    assert (narrowed.hidden, narrowed.configuration) == (set(), GPU)
    assert narrowed.left_out == {
        "kube-system", "kube-public", "kube-node-lease", "deferred-quota-system", "team-x"
    }  # fmt: skip
    assert (last.hidden, last.configuration) == ({"requests.amd.com/gpu"}, OTHER)
    assert last.rolled_out != first.rolled_out == narrowed.rolled_out


def test_a_rollout_that_does_not_end_leaves_the_mask_narrow() -> None:
    twin = Watched()
    run(twin, configuration=GPU)
    twin.available = False
    with pytest.raises(InstallError, match="0 of 3 replicas are available"):
        run(twin, configuration=OTHER)
    assert twin.steps[-1].hidden == set()
    # whatever is asked for next: pods with the first configuration may still run
    for configuration in (OTHER.replace("[kube-system, team-x]", "[]"), GPU):
        with pytest.raises(InstallError, match="0 of 3 replicas are available"):
            run(twin, configuration=configuration)
        assert twin.steps[-1].hidden == set()
        assert "team-x" in twin.steps[-1].left_out
    run(twin, waits=False)
    assert twin.steps[-1].hidden == set()


def test_pods_that_still_end_with_the_former_configuration_are_waited_for() -> None:
    twin = Watched()
    run(twin, configuration=GPU)
    template = pod_templates(twin)[0]
    (old,) = {each["metadata"]["annotations"][ANNOTATION] for each in pod_templates(twin)}
    for component in ("webhook", "controller"):
        labels = {
            "app.kubernetes.io/name": "deferred-quota",
            "app.kubernetes.io/component": component,
        }
        metadata = {"labels": labels, "annotations": {ANNOTATION: old}}
        pod = a_pod(name=f"old-{component}", namespace=SYSTEM, uid="", metadata=metadata)
        twin.api.create(PODS, pod)
    assert template["metadata"]["annotations"] == {ANNOTATION: old}
    with pytest.raises(InstallError, match="former configuration still run: old-webhook"):
        run(twin, configuration=OTHER)
    assert twin.steps[-1].hidden == set()
    for component in ("webhook", "controller"):
        twin.api.delete(PODS, f"old-{component}", namespace=SYSTEM)
    run(twin)
    assert twin.steps[-1].hidden == {"requests.amd.com/gpu"}


def test_without_waiting_the_mask_stays_narrow() -> None:
    twin = Watched()
    run(twin, configuration=GPU)
    _, lines = run(twin, configuration=OTHER, waits=False)
    assert twin.steps[-1].hidden == set()
    assert any("run this again without --no-wait" in line for line in lines)


def test_namespaces_that_are_exempt_are_never_asked_about() -> None:
    twin = Twin()
    run(twin, configuration=OTHER)
    for configuration in registrations(twin):
        for entry in configuration["webhooks"]:
            by_name = entry["namespaceSelector"]["matchExpressions"][1]
            assert "team-x" in by_name["values"]


BAD = {
    "unknown field": ("surprise: 1", "--config: surprise"),
    "no extended resource": ("deferredResources: [pods]", r"--config: deferredResources\[0\]"),
}


@pytest.mark.parametrize(("line", "message"), BAD.values(), ids=BAD.keys())
def test_a_bad_configuration_is_refused_before_anything_is_written(line: str, message: str) -> None:
    twin = Twin()
    text = f"apiVersion: deferredquota.io/v1alpha1\nkind: Configuration\n{line}\n"
    with pytest.raises(InstallError, match=message):
        run(twin, configuration=text)
    assert twin.written == []


def test_an_installed_configuration_that_cannot_be_read_is_named_with_what_helps() -> None:
    twin = Twin()
    run(twin)
    config = dict(twin.api.get(CONFIG_MAPS, "deferred-quota-config", namespace=SYSTEM))
    twin.api.update(CONFIG_MAPS, {**config, "data": {"config.yaml": "nonsense: [1"}})
    with pytest.raises(InstallError, match=r"^ConfigMap .*give another one with --config FILE$"):
        run(twin)
    run(twin, configuration=OTHER)


@pytest.mark.parametrize(("minor", "is_installed"), [("31", False), ("32", True), ("", True)])
def test_gates_of_jobs_are_tried_where_the_api_server_keeps_the_manager_of_a_job(
    minor: str, is_installed: bool
) -> None:
    """Before, the Job is stored without `managedBy`, and is refused when it is applied again."""
    twin = Twin()
    twin.minor = minor
    run(twin)
    assert any(line.startswith("apply Job ") for line in twin.written) is is_installed


@pytest.mark.parametrize(
    ("minor", "is_old"), [("29", True), ("9", True), ("30", False), ("36+", False)]
)
def test_an_api_server_that_is_too_old_is_refused(minor: str, is_old: bool) -> None:
    twin = Twin()
    twin.minor = minor
    if is_old:
        with pytest.raises(InstallError, match=r"1\.30 or newer is needed"):
            run(twin)
        assert twin.written == []
    else:
        assert run(twin)[0] > 0
    assert twin.version_reads == 1


# -- where the webhook is ----------------------------------------------------------------------

LEFT = (
    "Deployments: stay, and the webhook among them is asked no more; when all runs outside:"
    f" kubectl delete deployments -n {SYSTEM} deferred-quota-webhook deferred-quota-controller"
)
ANSWERS = (
    "webhook: the API server asks {} from then on: a webhook has to answer there, and a controller"
    " has to run"
)
STOP = (
    f"webhook: what runs at {HERE} is asked no more: stop it when this is done, and a controller"
    " that runs beside it"
)
MOVES: dict[str, tuple[str, str, list[str]]] = {
    "into the cluster": (HERE, "", [f"webhook: moves from {HERE} to {INSIDE}", STOP]),
    "out of the cluster": (
        "",
        HERE,
        [f"webhook: moves from {INSIDE} to {HERE}", ANSWERS.format(HERE), LEFT],
    ),
    "to another address": (
        HERE,
        THERE,
        [f"webhook: moves from {HERE} to {THERE[:-1]}", ANSWERS.format(THERE[:-1])],
    ),
    "nowhere": (HERE, f"{HERE}/", []),
    "nowhere, in the cluster": ("", "", []),
}


@pytest.mark.parametrize("dry_run", [False, True])
@pytest.mark.parametrize(("before", "after", "told"), MOVES.values(), ids=MOVES)
def test_that_the_webhook_moves_is_said_before_anything_is_written(
    before: str, after: str, told: list[str], dry_run: bool
) -> None:
    twin = Twin()
    assert not said_of_places(run(twin, url=before)[1])
    _, lines = run(twin, url=after, dry_run=dry_run)
    expected = [line.replace("moves", "would move") if dry_run else line for line in told]
    assert said_of_places(lines) == expected
    assert lines[2 : 2 + len(told)] == expected


def said_of_places(lines: list[str]) -> list[str]:
    return [line for line in lines if line.startswith(("webhook:", "Deployments:", "config"))]


@pytest.mark.parametrize("url", ["", HERE])
def test_what_runs_outside_is_said_to_keep_its_own_configuration(url: str) -> None:
    twin = Twin()
    of_file = f"configuration: what runs for {url} keeps that of its own file"
    for configuration, is_said in ((OTHER, bool(url)), (OTHER, False), (GPU, bool(url))):
        _, lines = run(twin, url=url, configuration=configuration)
        assert any(line.startswith(of_file) for line in lines) is is_said
    assert not any(line.startswith("configuration:") for line in run(twin, url=url)[1])


@pytest.mark.parametrize("url", ["", HERE])
def test_a_configuration_that_is_not_known_is_not_given_up(url: str) -> None:
    """An earlier version kept none where the webhook is outside of the cluster."""
    twin = Twin()
    run(twin, url=HERE, configuration=GPU)
    twin.api.delete(CONFIG_MAPS, "deferred-quota-config", namespace=SYSTEM)
    twin.written.clear()
    with pytest.raises(InstallError, match=r"ConfigMap .* give it with --config FILE"):
        run(twin, url=url)
    assert twin.written == []
    run(twin, url=url, configuration=GPU)


def test_the_ca_of_a_url_stays_until_another_one_is_given() -> None:
    twin = Twin()
    run(twin, url=HERE, ca_pem=b"first")
    _, lines = run(twin, url=HERE)
    assert f"trust: the CA that was given for {HERE} before stays" in lines
    assert trusted(twin) == {base64.b64encode(b"first").decode()}
    run(twin, url=HERE, ca_pem=b"")
    clients = [entry["clientConfig"] for each in registrations(twin) for entry in each["webhooks"]]
    assert not any("caBundle" in one for one in clients)
    _, lines = run(twin, url=THERE)
    assert any(line.startswith("trust: no --ca") for line in lines)


# -- what is being deleted ---------------------------------------------------------------------


class Ending(Twin):
    """A cluster out of which an installation is being taken.

    Its namespace goes after so many looks, and says why it does not.
    """

    looks = 3

    def get(self, kind: Kind, name: str, **options: Any) -> Object:
        found = self.api.get(kind, name, **options)
        if name != SYSTEM or not self.looks:
            return found
        self.looks -= 1
        if not self.looks:
            self.api.delete(NAMESPACES, SYSTEM)
        metadata = {**cast("Any", found)["metadata"], "deletionTimestamp": "2026-06-01T00:00:00Z"}
        remaining = {"type": "NamespaceContentRemaining", "status": "True", "message": "1 pod"}
        fine = {"type": "NamespaceDeletionDiscoveryFailure", "status": "False", "message": "fine"}
        return {**found, "metadata": metadata, "status": {"conditions": [remaining, fine]}}


def ending(looks: int) -> Ending:
    twin = Ending()
    twin.api.create(NAMESPACES, {"metadata": {"name": SYSTEM}})
    twin.looks = looks
    return twin


def test_what_is_being_deleted_is_waited_for() -> None:
    twin = ending(looks=3)
    changes, lines = run(twin)
    assert changes > 10
    assert lines[2:5] == [
        f"Namespace {SYSTEM}: is being deleted; the installation begins when it is gone",
        f"Namespace {SYSTEM}: waiting until it is gone (1 pod)",
        f"Namespace {SYSTEM}: gone",
    ]
    assert lines.index(f"Namespace {SYSTEM}: created") > 4


ENDLESS = {
    "too long": ({}, "is deleted, but not gone yet (1 pod); gave up after 0.05 s"),
    "without waiting": ({"waits": False}, "is being deleted; run this again when it is gone"),
    "in a dry run": ({"dry_run": True}, "is being deleted; run this again when it is gone"),
}


@pytest.mark.parametrize(("wish", "words"), ENDLESS.values(), ids=ENDLESS)
def test_nothing_is_put_into_what_is_being_deleted(wish: dict[str, Any], words: str) -> None:
    twin = ending(looks=10_000)
    with pytest.raises(InstallError, match=re.escape(f"Namespace {SYSTEM}: {words}")):
        run(twin, **wish)
    assert twin.written == []


def test_a_dry_run_counts_every_object_once() -> None:
    twin = Twin()
    changes, lines = run(twin, dry_run=True)
    assert changes == len([line for line in lines if line.endswith("would be created")])
    assert len(set(lines)) == len(lines)
