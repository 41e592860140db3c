"""Two controllers rotate in every interleaving, and nothing that is served is ever not trusted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final, TypeAlias

import pytest

from tests.patching import wrap
from tests.tls import rotation_exploration as model
from tests.tls.rotation_exploration import CA, NOW, TLS, Exploration, Scenario
from webhook.kube.api import ConflictError
from webhook.runtime import certificate_rotation
from webhook.tls import rotation, rotation_store
from webhook.tls.bundles import bundle_of
from webhook.tls.rotation import Inject, Surroundings
from webhook.tls.rotation_store import CertificateStore, spec_for

DAY: Final = timedelta(days=1)
Patch: TypeAlias = pytest.MonkeyPatch


@pytest.fixture(autouse=True)
def stepped() -> Iterator[None]:
    with model.stepped():
        yield


def _nothing() -> Scenario:
    return Scenario(model.nothing(), ticks=1)


def _leaf_due() -> Scenario:
    return Scenario(model.installed(NOW - 61 * DAY)._replace(now=NOW), ticks=1)


def _ca_due(*, reverts: int = 0) -> Scenario:
    """A CA whose time has come, and a certificate that lives for fifty days more."""
    old = model.installed(NOW - 490 * DAY)
    renewed = model.rested(old._replace(now=NOW - 40 * DAY))
    return Scenario(renewed._replace(now=NOW, reverts=reverts), ticks=1, later=50 * DAY)


def _lost(*places: int) -> Scenario:
    """Secrets that are deleted, while replicas serve the pair that was there."""
    state = model.installed(NOW - DAY)
    objects = [None if place in places else each for place, each in enumerate(state.objects)]
    leaves = frozenset({model.leaf_of(state)} if TLS in places else ())
    lost = state._replace(now=NOW, objects=tuple(objects), leaves=leaves, is_seen_late=False)
    return Scenario(lost, ticks=1)


SCENARIOS: Final[dict[str, Callable[[], Scenario]]] = {
    "nothing is there": _nothing,
    "the certificate is due": _leaf_due,
    "the CA is due": _ca_due,
    "the CA is due, and an entry is put back": lambda: _ca_due(reverts=1),
    "the CA's Secret is lost": lambda: _lost(CA),
    "the served Secret is lost": lambda: _lost(TLS),
    "both Secrets are lost": lambda: _lost(CA, TLS),
}


STATES: Final = {
    "nothing is there": 4_000,
    "the certificate is due": 170,
    "the CA is due, and an entry is put back": 38_000,  # and where none is
    "the CA's Secret is lost": 6_000,
    "the served Secret is lost": 170,
    "both Secrets are lost": 3_000,
}
"""How many states there are at least."""


@pytest.mark.parametrize(("name", "least"), STATES.items(), ids=STATES)
def test_in_no_state_is_trust_or_a_key_lost_and_each_leads_to_rest(name: str, least: int) -> None:
    assert least < Exploration(SCENARIOS[name]()).explore() < 2 * least


# -- rules that are broken on purpose --------------------------------------------------------------


def _change_spec(patch: Patch, **fields: Any) -> None:
    patch.setattr(certificate_rotation, "spec_for", lambda one: replace(spec_for(one), **fields))


def _serve_as_soon_as_it_is_published(patch: Patch) -> None:
    _change_spec(patch, publish_time=timedelta())


def _note_the_time_at_which_the_round_began(patch: Patch) -> None:
    def rotated(rotate: Any, *args: Any, clock: Callable[[], Any], **more: Any) -> Any:
        began = clock()
        return rotate(*args, clock=lambda: began, **more)

    wrap(patch, certificate_rotation, "rotate", rotated)


def _note_it_whatever_is_registered(patch: Patch) -> None:
    wrap(patch, rotation, "_lacks", lambda lacks, *args: False if args[0] else lacks(*args))


def _trust_no_former_ca(patch: Patch) -> None:
    def without(new_ca: Any, *args: Any) -> Any:
        step = new_ca(*args)
        return replace(step, certificates=replace(step.certificates, former=b""))

    wrap(patch, rotation, "_new_ca", without)


def _retire_at_once(patch: Patch) -> None:
    def retired(with_new_pair: Any, held: Any, spec: Any, now: Any) -> Any:
        return replace(with_new_pair(held, spec, now), former_until=now)

    wrap(patch, rotation, "_with_new_pair", retired)


def _retire_nothing(patch: Patch) -> None:
    def all_kept(former: Any, *args: Any) -> Any:
        kept, retired = former(*args)
        return [*kept, *retired], []

    wrap(patch, rotation, "_former", all_kept)


def _leave_former_cas_registered(patch: Patch) -> None:
    def without_retired(check: Any, held: Any, wanted: Any, _retired: Any, *more: Any) -> Any:
        return check(held, wanted, (), *more)

    wrap(patch, rotation, "_check_registrations", without_retired)


def _register_after_it_is_served(patch: Patch) -> None:
    def unregistered(new_bundle: Any, *args: Any) -> Any:
        *others, around = args
        return new_bundle(*others, replace(around, bundles=()))

    wrap(patch, rotation, "_new_bundle", unregistered)


def _keep_what_was_noted(patch: Patch) -> None:
    """An entry that was put back is written again, and counts as if it had never been."""

    def checked(check: Any, held: Any, wanted: bytes, retired: Sequence[Any], *more: Any) -> Any:
        step = check(held, wanted, retired, *more)
        if isinstance(step, rotation.WriteCa) and step.certificates.published is None:
            return Inject(wanted, bundle_of(retired), "")
        return step

    wrap(patch, rotation, "_check_registrations", checked)


def _write_whatever_is_there(patch: Patch) -> None:
    def unconditional(secret: Any, *args: Any) -> Any:
        found: Any = secret(*args)
        found["metadata"].pop("resourceVersion", None)
        return found

    wrap(patch, rotation_store, "_secret", unconditional)


def _go_on_after_a_conflict(patch: Patch) -> None:
    apply = CertificateStore.apply

    def applied(self: CertificateStore, step: Any, stored: Any, **more: Any) -> Any:
        try:
            return apply(self, step, stored, **more)
        except ConflictError:
            return replace(stored, held=step.certificates)

    patch.setattr(CertificateStore, "apply", applied)


def _forget_what_a_lost_ca_had_signed(patch: Patch) -> None:
    def forgetful(new_ca: Any, held: Any, spec: Any, around: Any, reason: str) -> Any:
        return new_ca(replace(held, bundle=b""), spec, replace(around, bundles=()), reason)

    wrap(patch, rotation, "_new_ca", forgetful)


def _take_no_registered_ca_for_ours(patch: Patch) -> None:
    patch.setattr(rotation, "is_own_ca", lambda _certificate: False)


def _make_a_ca_each_time(patch: Patch) -> None:
    def always(check: Any, held: Any, spec: Any, around: Surroundings) -> Any:
        return check(held, spec, replace(around, forces="ca"))

    wrap(patch, rotation, "_check_ca", always)


BREACHES: Final[dict[str, tuple[str, str, Callable[[Patch], None]]]] = {
    "a new CA is published for ten minutes": (
        "the CA is due",
        "what is served is not trusted",
        _serve_as_soon_as_it_is_published,
    ),
    "published counts from a look that is later than the write": (
        "the CA is due",
        "what is served is not trusted",
        _note_the_time_at_which_the_round_began,
    ),
    "published is what every entry has": (
        "the CA is due",
        "does not become steady",
        _note_it_whatever_is_registered,
    ),
    "an entry that was put back begins it anew": (
        "the CA is due, and an entry is put back",
        "what is served is not trusted",
        _keep_what_was_noted,
    ),
    "a former CA stays trusted": ("the CA is due", "does not become steady", _trust_no_former_ca),
    "until its last certificate has ended": (
        "the CA is due",
        "what is served is not trusted",
        _retire_at_once,
    ),
    "and no longer": ("the CA is due", "it is not waited for", _retire_nothing),
    "in the registrations either": (
        "the CA is due",
        "does not become steady",
        _leave_former_cas_registered,
    ),
    "a CA is registered before it is served": (
        "nothing is there",
        "what is served is not trusted",
        _register_after_it_is_served,
    ),
    "a Secret is written over what was read": (
        "the CA is due",
        "the key of a CA is lost",
        _write_whatever_is_there,
    ),
    "a conflict ends the round": (
        "nothing is there",
        "does not become steady",
        _go_on_after_a_conflict,
    ),
    "what a lost CA had signed stays trusted, and is retired": (
        "the CA's Secret is lost",
        "does not become steady",
        _forget_what_a_lost_ca_had_signed,
    ),
    "also where it is only registered": (
        "both Secrets are lost",
        "does not become steady",
        _take_no_registered_ca_for_ours,
    ),
    "a CA is made when there is a reason": (
        "nothing is there",
        "do not come to rest",
        _make_a_ca_each_time,
    ),
}


@pytest.mark.parametrize(("name", "noticed", "breach"), BREACHES.values(), ids=BREACHES)
def test_a_broken_rule_is_noticed(
    name: str, noticed: str, breach: Callable[[Patch], None], monkeypatch: Patch
) -> None:
    scenario = SCENARIOS[name]()
    breach(monkeypatch)
    with pytest.raises((AssertionError, RuntimeError), match=noticed):
        Exploration(scenario).explore(most=60_000)
