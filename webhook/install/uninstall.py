"""Uninstall deferred-quota, so that nothing waits for it and quotas are enforced all the time.

1. The mask and everything else that changes requests is deleted, except the entry that pins the
   pod's uid in a Binding: nothing is hidden or gated any more, and guards know what they charge. So
   are the entry that restricts who may remove gates, and the one for shadow mode.
2. The controller, which would mask again, is stopped. If the mask or another part of step 1 cannot
   be deleted, it goes on, unless that is forced: it has to count what is still charged.
3. Our gate is removed from pods, and quotas are completed. From then on the API server enforces all
   of them by itself.
4. Only now the guards are deleted, then the webhook, the policies for its identities, the rights,
   the ledgers and the namespace. If a step before has failed they stay, unless that is forced:
   quotas would not be enforced. The API server does not know cluster quotas: each is named, and
   deleted with its CustomResourceDefinition unless that is kept.

Before all that the leader is looked for: a controller that runs outside of the cluster would mask
again what step 3 completes, for as long as it runs.

Each step is taken whether or not the others found something to do. None of them needs an answer of
the webhook, which is not called about anything that is written here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from webhook.install.apply import (
    current,
    delete,
    describe,
    is_foreign_definition,
    kind_of_object,
)
from webhook.install.endpoint_probe import PROBE
from webhook.install.external_leader import CONTROLLER_PODS, leader_in_the_way
from webhook.install.kustomizations import entries_of, read_directory
from webhook.install.place import chosen_namespace
from webhook.install.readiness import wait_until_gone
from webhook.install.rendering import API_PRIORITY, MANIFESTS, render_everything
from webhook.jsonfields.fields import mapping
from webhook.kube.api import (
    CLUSTER_DEFERRED_QUOTAS,
    COMPOSITE_ELASTIC_QUOTAS,
    ELASTIC_QUOTAS,
    NAMESPACES,
    POD_GATINGS,
    PODS,
    QUOTA_LEDGERS,
    ApiError,
    ClusterApi,
    ForbiddenError,
    InvalidError,
    JsonPatch,
    Kind,
    ListOptions,
    NotFoundError,
    Object,
)
from webhook.kube.metadata import object_name, object_namespace
from webhook.operations.disable import opt_out, opted_in_namespaces
from webhook.operations.gates import gated_pods
from webhook.operations.names import MARKS_ENTRY, STAMP_ENTRY
from webhook.operations.namespaces_at_once import in_each
from webhook.operations.retry import CONFLICTS, PASSING, Report, RetryPolicy, silent
from webhook.state.well_known import FORMER_GATING_LABEL, GATING_LABEL, LEADER_LEASE, SHADOW_ENTRY

_GUARDS_STAY: Final = (
    "stopped here: the guards at the bind and the webhook stay, because without them quotas might"
    " not be enforced. See to the above (a controller that runs outside of the cluster is"
    " yours to stop), and run this again; or go on all the same with --force"
)
_CONTROLLER_STAYS: Final = (
    "stopped here: the controller, the guards and the webhook stay, because something that hides"
    " quotas or changes requests is still there. See to the above, and run this again; or go on all"
    " the same with --force"
)
_NOTHING_CHANGED: Final = "stopped here: nothing was changed; go on all the same with --force"


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """Objects to take out."""

    namespace: str = ""
    """Where it is installed; empty is where the registration says, else the default."""
    removes_labels: bool = False
    """Whether namespaces are opted out, too."""
    keeps_ledgers: bool = False
    """Whether the definitions of ledgers and of cluster quotas stay, and all of both with them."""
    is_forced: bool = False
    """Whether the guards go although quotas may not be enforced without them."""
    dry_run: bool = False
    """Only say what would be done."""
    patience: RetryPolicy = RetryPolicy()  # noqa: RUF009 - frozen
    """How long to wait for one thing."""
    manifests: Path = MANIFESTS


def uninstall(api: ClusterApi, removal: Removal, report: Report) -> tuple[str, ...]:
    """Take deferred-quota out; return what is not done, and why: run it again.

    Raises:
        InstallError: The namespace is not that of an installation.
        ApiError: The API server does not answer, or refuses the read. What was done stays done.
    """
    removal = replace(removal, namespace=chosen_namespace(api, removal.namespace))
    return _Uninstall(api, removal, report).run()


class _Uninstall:
    def __init__(self, api: ClusterApi, removal: Removal, report: Report) -> None:
        self._api = api
        self._removal = removal
        self._report = report
        self._problems: list[str] = []
        self._labelled: Sequence[str] = ()

    def run(self) -> tuple[str, ...]:
        objects = render_everything(self._removal.namespace, self._removal.manifests)
        concerned = self._concerned()
        if self._is_undone_outside():
            return tuple(self._problems)
        mutating, last, validating = objects.registrations
        before = len(self._problems)
        self._delete((PROBE, *reversed(objects.masks), *reversed(objects.creation), last))
        self._reduce(mutating, lambda name: name == STAMP_ENTRY)
        self._reduce(validating, lambda name: name not in {MARKS_ENTRY, SHADOW_ENTRY})
        if self._problems[before:] and not self._removal.is_forced:
            self._problems.append(_CONTROLLER_STAYS)
            return tuple(self._problems)
        self._delete(_called(objects.workloads, "deferred-quota-controller"))
        self._wait_for_controller()
        self._give_back(concerned)
        if self._problems and not self._removal.is_forced:
            self._problems.append(_GUARDS_STAY)
            return tuple(self._problems)
        for kind in (CLUSTER_DEFERRED_QUOTAS, ELASTIC_QUOTAS, COMPOSITE_ELASTIC_QUOTAS):
            self._tell_of_quotas(kind, objects.cluster)
        self._delete((validating, mutating, *reversed(objects.stamps)))
        self._delete(reversed((*objects.features, *objects.configuration, *objects.workloads)))
        self._delete(reversed(objects.identities))
        self._delete(reversed(read_directory(self._removal.manifests / API_PRIORITY)))
        self._delete(_without(reversed(objects.cluster), self._removal))
        if self._labelled and not (self._removal.removes_labels or self._removal.dry_run):
            self._report(
                f"still labelled: {', '.join(self._labelled)}; another installation takes them in"
                " at once. --remove-labels takes the label off"
            )
        return tuple(self._problems)

    def _concerned(self) -> list[str]:
        """Return the namespaces that may have something of ours."""
        wait = self._removal.patience.begin()
        self._labelled = wait.retry(lambda: opted_in_namespaces(self._api))
        found = {*self._labelled}
        if self._removal.removes_labels:  # of which one may have stayed when a namespace left
            for label in (GATING_LABEL, FORMER_GATING_LABEL):
                options = ListOptions(label_selector=label)
                labeled = wait.retry(partial(self._api.list, NAMESPACES, options))
                found.update(map(object_name, labeled.items))
        gated, odd = wait.retry(lambda: gated_pods(self._api, None))
        self._problems += odd
        found.update(each.namespace for each in gated)
        try:
            ledgers = wait.retry(lambda: self._api.list(QUOTA_LEDGERS)).items
        except NotFoundError:
            ledgers = ()  # their definition is gone
        found.update(map(object_namespace, ledgers))
        return sorted(found)

    def _is_undone_outside(self) -> bool:
        """Look for a controller outside of the cluster, which would mask for ever; and stop then.

        Where labels go it masks no more.
        """
        if self._removal.removes_labels or self._removal.is_forced:
            return False
        found = leader_in_the_way(self._api, self._removal.namespace, self._removal.patience)
        if found is None:
            return False
        leader, namespaces = found
        words = (
            f"Lease {self._removal.namespace}/{LEADER_LEASE}: {leader} leads, and is no pod of"
            f" {self._removal.namespace}: it would hide again what is completed in the opted-in"
            f" namespaces {', '.join(namespaces)}. Stop it first, or opt them out with"
            " --remove-labels"
        )
        if self._removal.dry_run:
            self._report(
                f"{words}; this would stop here, and do what follows only after that, or with"
                " --force"
            )
            return False
        self._problems += [words, _NOTHING_CHANGED]
        return True

    def _tell_of_quotas(self, kind: Kind, definitions: Iterable[Object]) -> None:
        """Name the quotas of several namespaces that will not be enforced, before the guards go."""
        wait = self._removal.patience.begin()
        try:
            found = wait.retry(lambda: self._api.list(kind)).items
        except NotFoundError:
            return  # their definition is gone, or was never there
        except ForbiddenError as err:
            self._problems.append(f"{kind.kind}: {err.message}")
            return
        going = [each for each in definitions if object_name(each) == kind.resource]
        is_kept = any(is_foreign_definition(current(self._api, each)) for each in going)
        is_kept = is_kept or self._removal.keeps_ledgers
        fate = "stays" if is_kept else "goes with its definition"
        if self._removal.dry_run:
            fate = f"would not be enforced; it {fate}"
        else:
            fate = f"is not enforced from now on; it {fate}"
        places = {(object_namespace(each), object_name(each)) for each in found}
        for place in sorted(places):
            self._report(f"{kind.kind} {'/'.join(filter(None, place))}: {fate}")

    def _delete(self, objects: Iterable[Object]) -> None:
        """Delete objects, and wait until they are gone."""
        deleted = [each for each in objects if self._delete_one(each)]
        self._problems += wait_until_gone(self._api, deleted, self._removal.patience, self._report)

    def _reduce(self, configuration: Object, keeps: Callable[[str], bool]) -> None:
        """Take entries out of a webhook configuration, of the version that is there."""

        def write() -> str:
            found = current(self._api, configuration)
            every = [] if found is None else list(entries_of(found))
            kept = [entry for entry in every if keeps(str(entry.get("name")))]
            if found is not None and len(kept) < len(every) and not self._removal.dry_run:
                version = mapping(found["metadata"], "metadata")["resourceVersion"]
                patch: JsonPatch = [
                    {"op": "test", "path": "/metadata/resourceVersion", "value": version},
                    {"op": "replace", "path": "/webhooks", "value": kept},
                ]
                self._api.patch(kind_of_object(configuration), object_name(configuration), patch)
            return ", ".join(str(entry.get("name")) for entry in every if entry not in kept)

        try:
            # the certificates are kept in the same object until the controller stops
            what = self._removal.patience.begin().retry(
                write, passing=(*PASSING, *CONFLICTS, InvalidError)
            )
        except NotFoundError:
            return
        except ForbiddenError as err:
            self._problems.append(f"{describe(configuration)}: {err.message}")
            return
        if what:
            verb = "would be" if self._removal.dry_run else "is"
            self._report(f"{describe(configuration)}: {verb} left without {what}")

    def _delete_one(self, obj: Object) -> bool:
        found = current(self._api, obj)
        if found is None:
            return False
        if is_foreign_definition(found):
            self._report(f"{describe(obj)}: is another program's, and left as it is")
            return False
        if self._removal.dry_run:
            self._report(f"{describe(obj)}: would be deleted")
            return False
        try:
            delete(
                self._api,
                kind_of_object(obj),
                object_name(obj),
                namespace=object_namespace(obj),
                patience=self._removal.patience,
            )
        except NotFoundError:
            return False
        except ForbiddenError as err:
            self._problems.append(f"{describe(obj)}: {err.message}")
            return False
        self._report(f"{describe(obj)}: deleted")
        return True

    def _wait_for_controller(self) -> None:
        """Wait until no controller runs in the cluster that could undo what comes next."""
        if self._removal.dry_run:
            return
        wait = self._removal.patience.begin()

        def pods() -> Sequence[Object]:
            return self._api.list(
                PODS, ListOptions(namespace=self._removal.namespace, label_selector=CONTROLLER_PODS)
            ).items

        is_said = False
        while left := wait.retry(pods):
            if not is_said:
                names = ", ".join(map(object_name, left))
                self._report(f"waiting until the pods of the controller have ended: {names}")
                is_said = True
            if not wait.pause():
                self._problems += [f"Pod {object_name(each)}: {_still(each)}" for each in left]
                return

    def _give_back(self, namespaces: Sequence[str]) -> None:
        """Release pods and complete quotas, in several namespaces at once."""
        if self._removal.dry_run:
            for namespace in namespaces:
                self._report(f"{namespace}: gates would be removed, quotas completed")
            return
        done = in_each(
            namespaces, self._give_one_back, patience=self._removal.patience, report=silent
        )
        if done.is_interrupted:
            raise KeyboardInterrupt
        found = [one.value or () for one in done.each]
        problems = [problem for some in found for problem in some]
        is_sure = not self._problems and not problems  # else something may still mask
        self._problems += problems
        for namespace, some in zip(namespaces, found, strict=True):
            if is_sure:
                self._report(f"{namespace}: the API server enforces its quotas by itself")
            elif not some:
                self._report(f"{namespace}: its quotas are complete now")

    def _give_one_back(self, namespace: str, patience: RetryPolicy) -> Sequence[str]:
        try:
            done = opt_out(
                self._api,
                namespace,
                report=self._report,
                patience=patience,
                keeps_label=not self._removal.removes_labels,
                forgets_gating=self._removal.removes_labels,
            )
        except ApiError as err:
            return [f"{namespace}: {err.message}"]
        return [f"{namespace}: {problem}" for problem in done.problems]


def _still(controller: Object) -> str:
    if "deletionTimestamp" in mapping(controller["metadata"], "metadata"):
        return "the controller is ending; run this again when the pod is gone"
    return "the controller still runs"


def _called(objects: Iterable[Object], name: str) -> list[Object]:
    return [each for each in objects if each["kind"] == "Deployment" and object_name(each) == name]


def _without(objects: Iterable[Object], removal: Removal) -> list[Object]:
    """Return what goes; with PodGatings that stayed, a later installation would gate by them."""
    if not removal.keeps_ledgers:
        return list(objects)
    return [
        each
        for each in objects
        if each["kind"] != "CustomResourceDefinition" or object_name(each) == POD_GATINGS.resource
    ]
