"""Whatever interleaves, no shared quota is given twice; and the world notices where it would be.

The laws of elastic quotas, and where each is asserted; `ELASTIC_BREACHES` breaks each once:

| law | in the elastic world | elsewhere |
| --- | --- | --- |
| E1 Max, E2 Pool | `_check_written`; C, E, F of `sharing_simulation` | torture, per revision |
| E3 Join | `_check_written`, `_check_joined` | `test_completeness` |
| E4 Headroom | `_check_written`: how much; `_check_denied`: no 403 | `test_headroom` |
| E5 Owner first | `check_owners_first` | `test_precedence` |
| E6 Promise, by whom | `_check_written` | `test_reclaim_controller` |
| E6 Promise, for whom | `note_raise` | the same |
| E6 Promise, its end | `_reclaim_with`: told; `check_quiet`: none is left | the same |
| E7 Entitled, E8 Needed, E9 Stable | `_check_plans`, with `quota.elastic.laws` | its `test_laws` |
| E10 Share, E11 Labels, E12 Composite | the same | the same |
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.controllers.shared.elastic_simulation import POOL, ElasticSimulation
from tests.controllers.shared.sharing_simulation import drive, run
from tests.patching import wrap
from webhook.controllers.elastic import precedence
from webhook.controllers.elastic.promise_reconciler import PromiseReconciler
from webhook.controllers.elastic.promises import HeldPromise, Promises
from webhook.controllers.shared import grant_transaction, ledgerless, shared_context
from webhook.controllers.shared.completeness import Completeness
from webhook.controllers.shared.grant_transaction import GrantTransaction
from webhook.controllers.shared.leaving import Leaving
from webhook.quota.amounts.quantity import ZERO
from webhook.quota.amounts.resources import ResourceList, add
from webhook.quota.elastic import capacity
from webhook.quota.elastic.balance import Balance, Claim
from webhook.quota.elastic.fair_share import Pool
from webhook.quota.ledger import apply_usage
from webhook.quota.ledger.ledger import Account, Ledger, QuotaRevision
from webhook.quota.shared import escrow
from webhook.quota.shared.escrow import Raise, Shared, raised
from webhook.quota.shared.grants import Grants, with_raised
from webhook.state import batch_decision, grant_raising
from webhook.state.grant_raising import GrantRaiser, PendingRaise, SharedLookups
from webhook.state.ledger_store import LedgerStore, LedgerVersion
from webhook.state.shared_quotas import SharedQuotaStore, SharedQuotaVersion

Patch = pytest.MonkeyPatch
Beside = Callable[..., Ledger]
_GENUINE_WRITE = SharedQuotaStore.write
_GENUINE_LEDGER_WRITE = LedgerStore.write
_GENUINE_LOWER = GrantTransaction.lower_grants
_GENUINE_GRANTED = GrantTransaction.raise_grants


@pytest.mark.parametrize("first", range(0, 90, 15))
def test_nothing_is_given_twice(first: int) -> None:
    admitted = sum(drive(seed, 300) for seed in range(first, first + 15))
    assert admitted > 50  # otherwise nobody would have noticed


def _do_not_write_what_is_there(patch: Patch) -> None:
    def write(
        store: SharedQuotaStore, version: SharedQuotaVersion, grants: Grants
    ) -> SharedQuotaVersion:
        shared = version.shared
        is_there = shared is not None and (grants.namespaces, grants.observed) == (
            shared.grants.namespaces,
            shared.grants.observed,
        )
        return version if is_there else _GENUINE_WRITE(store, version, grants)

    patch.setattr(SharedQuotaStore, "write", write)


def _write_the_ledger_without_comparing(patch: Patch) -> None:
    def write(
        store: LedgerStore, namespace: str, _version: LedgerVersion, ledger: Ledger, **options: Any
    ) -> LedgerVersion:
        present = store.fetch(namespace)
        assert present is not None
        return _GENUINE_LEDGER_WRITE(store, namespace, present, ledger, **options)

    patch.setattr(LedgerStore, "write", write)


def _write_the_quota_without_comparing(patch: Patch) -> None:
    def write(
        store: SharedQuotaStore, version: SharedQuotaVersion, grants: Grants
    ) -> SharedQuotaVersion:
        return _GENUINE_WRITE(store, store.fetch(version.name) or version, grants)

    patch.setattr(SharedQuotaStore, "write", write)


def _lower_without_writing_the_ledger(patch: Patch) -> None:
    patch.setattr(grant_transaction, "rewritten", lambda ledger: ledger)


def _lower_what_is_there_afterwards(patch: Patch) -> None:
    def lower(transaction: GrantTransaction) -> None:
        transaction.look_up_again()  # type: ignore[attr-defined]
        _GENUINE_LOWER(transaction)

    def look_up_again(transaction: GrantTransaction) -> None:
        for name in transaction.to_lower:
            transaction.versions[name] = transaction.shared.store.fetch(name)

    patch.setattr(GrantTransaction, "look_up_again", look_up_again, raising=False)
    patch.setattr(GrantTransaction, "lower_grants", lower)


def _raise_before_all_are_counted(patch: Patch) -> None:
    def open_to(namespace: str, _account: Account, shared: Shared | None) -> bool:
        return shared is not None and namespace in shared.grants.namespaces

    patch.setattr("webhook.state.grant_raising.open_to", open_to)


def _overlook_what_others_hold(patch: Patch) -> None:
    patch.setattr("webhook.state.grant_raising.beside", lambda ledger, _namespace, _shared: ledger)


def _give_what_is_promised_to_others(patch: Patch) -> None:
    def beside(
        genuine: Beside, ledger: Ledger, namespace: str, shared: Mapping[str, Shared | None]
    ) -> Ledger:
        without_promises = {
            name: found and replace(found, grants=replace(found.grants, promises={}))
            for name, found in shared.items()
        }
        return genuine(ledger, namespace, without_promises)

    wrap(patch, grant_raising, "beside", beside)


def _take_what_is_promised_for_ones_own(patch: Patch) -> None:
    def beside(
        genuine: Beside, ledger: Ledger, namespace: str, shared: Mapping[str, Shared | None]
    ) -> Ledger:
        foreign = {
            name: found
            and replace(
                found,
                grants=replace(
                    found.grants,
                    promises={
                        uid: one
                        for uid, one in found.grants.promises.items()
                        if one.namespace != namespace
                    },
                ),
            )
            for name, found in shared.items()
        }
        return genuine(ledger, namespace, foreign)

    wrap(patch, grant_raising, "beside", beside)


def _give_what_was_promised_before(patch: Patch) -> None:
    def beside(
        genuine: Beside, ledger: Ledger, namespace: str, shared: Mapping[str, Shared | None]
    ) -> Ledger:
        reversed_order = {
            name: found
            and replace(
                found,
                grants=replace(
                    found.grants, promises=dict(reversed([*found.grants.promises.items()]))
                ),
            )
            for name, found in shared.items()
        }
        return genuine(ledger, namespace, reversed_order)

    wrap(patch, grant_raising, "beside", beside)


def _give_what_is_kept_to_others(patch: Patch) -> None:
    def beside(
        genuine: Beside, ledger: Ledger, namespace: str, shared: Mapping[str, Shared | None]
    ) -> Ledger:
        unkept = {
            name: found and replace(found, quota=replace(found.quota, kept=()))
            for name, found in shared.items()
        }
        return genuine(ledger, namespace, unkept)

    wrap(patch, grant_raising, "beside", beside)


def _decide_each_as_if_it_came_alone(patch: Patch) -> None:
    def decided(batch: Iterable[PendingRaise], lookups: SharedLookups) -> dict[str, Shared] | None:
        found: dict[str, Shared] = {}
        for one in batch:
            wanted = one.decide({name: lookups[name] for name in one.names})
            for name, amounts in wanted.items():
                shared = found.get(name) or lookups[name].shared
                assert shared is not None
                grants = raised(shared.grants, one.namespace, amounts)
                found[name] = replace(shared, grants=grants)
        return found

    patch.setattr(grant_raising, "_decided", decided)


def _tell_what_is_not_written(patch: Patch) -> None:
    def write(genuine: Callable[..., Any], *what: Any) -> set[str]:
        genuine(*what)
        return set()

    wrap(patch, GrantRaiser, "_write", write)


def _take_part_before_the_ledger_counts(patch: Patch) -> None:
    patch.setattr(GrantTransaction, "_had_joined", lambda *_: True)


def _complete_with_some_missing(patch: Patch) -> None:
    patch.setattr(Completeness, "_missing", lambda *_: [])


def _leave_before_the_ledger_is_written(patch: Patch) -> None:
    def granted(
        transaction: GrantTransaction, ledger: Ledger, *, has_released: bool
    ) -> Ledger | None:
        found = _GENUINE_GRANTED(transaction, ledger, has_released=has_released)
        _GENUINE_LOWER(transaction)
        return found

    patch.setattr(GrantTransaction, "raise_grants", granted)
    patch.setattr(GrantTransaction, "lower_grants", lambda _turn: None)


def _hold_without_saying_so(patch: Patch) -> None:
    patch.setattr(GrantTransaction, "_raise", lambda _turn, _name, version, _wanted, **_: version)


def _keep_what_another_quota_granted(patch: Patch) -> None:
    def granted(observed: QuotaRevision, former: Ledger) -> Any:
        account = former.accounts.get(observed.name)
        return {} if account is None else account.granted

    patch.setattr(apply_usage, "_granted", granted)


def _drop_without_looking_at_the_ledger(patch: Patch) -> None:
    patch.setattr(Leaving, "_has_left", lambda *_: True)


def _list_before_the_quota_is_read(patch: Patch) -> None:
    def drop(
        genuine: Callable[..., bool],
        leaving: Leaving,
        namespaces: Collection[str],
        name: str,
        term: int,
    ) -> bool:
        former = leaving.shared.store.fetch(name)
        gone = set() if former is None else leaving.listed(namespaces, former)
        with pytest.MonkeyPatch.context() as during:
            during.setattr(leaving, "listed", lambda *_: {*gone})
            return genuine(leaving, namespaces, name, term)

    wrap(patch, Leaving, "drop", drop)


BREACHES: Mapping[str, Callable[[Patch], None]] = {
    "raise: a quota that says enough is not written": _do_not_write_what_is_there,
    "raise: the ledger's version is not compared": _write_the_ledger_without_comparing,
    "raise: the quota's version is not compared": _write_the_quota_without_comparing,
    "raise: before all are counted": _raise_before_all_are_counted,
    "raise: what others hold is overlooked": _overlook_what_others_hold,
    "raise: what runs already is not said": _hold_without_saying_so,
    "together: each as if it came alone": _decide_each_as_if_it_came_alone,
    "together: told before it is written": _tell_what_is_not_written,
    "lower: the ledger is not written first": _lower_without_writing_the_ledger,
    "lower: the quota is read after the ledger was written": _lower_what_is_there_afterwards,
    "promised: to a pod, and given to others": _give_what_is_promised_to_others,
    "promised: to a pod, and given to its namespace": _take_what_is_promised_for_ones_own,
    "kept: for a namespace, and given to others": _give_what_is_kept_to_others,
    "join: before the ledger counts": _take_part_before_the_ledger_counts,
    "join: complete with some missing": _complete_with_some_missing,
    "leave: before the ledger is written": _leave_before_the_ledger_is_written,
    "leave: whatever the ledger says": _drop_without_looking_at_the_ledger,
    "recreated: what the former quota granted is kept": _keep_what_another_quota_granted,
}


@pytest.mark.parametrize("breach", BREACHES.values(), ids=BREACHES.keys())
def test_a_broken_rule_is_noticed(
    breach: Callable[[Patch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    breach(monkeypatch)
    with pytest.raises(AssertionError) as noticed:
        _search()
    assert str(noticed.value)


def test_a_drop_by_lists_that_are_older_than_the_quota_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _list_before_the_quota_is_read(monkeypatch)
    with pytest.raises(AssertionError, match=r"^B: . holds"):
        _search(range(527, 6000, 13))  # with namespaces that are deleted and made again


def test_a_claim_that_is_left_for_a_former_spec_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in (grant_transaction, shared_context):
        monkeypatch.setattr(module, "names_former_spec", lambda _shared: False)
    with pytest.raises(AssertionError, match=r"^D: .* is complete without ."):
        _search(range(3, 6000, 13))  # with selectors that are taken back


def test_what_a_namespace_without_a_ledger_keeps_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ledgerless, "lowered", raised)
    with pytest.raises(AssertionError, match=r"^. takes \d of cdq/both, which says \d$"):
        _search(range(406, 6000, 13))  # with namespaces that are terminated


def test_what_is_given_to_a_pod_with_a_later_promise_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _give_what_was_promised_before(monkeypatch)
    with pytest.raises(AssertionError, match=r"^(E|G)"):
        _search(range(69, 6000, 5))  # with promises


def _search(seeds: range = range(1500)) -> None:
    for seed in seeds:
        drive(seed, 300)


def _elastic(seed: int) -> ElasticSimulation:
    world = ElasticSimulation(seed, is_calm=seed % 3 == 0)
    run(world, 300)
    return world


ELASTIC: Mapping[str, int] = {
    **dict.fromkeys(("E1", "E2", "E3", "E4", "E6"), 30),
    **dict.fromkeys(("E5", "E7", "E8", "E9", "E10", "E11", "E12"), 10),
    "together": 2,
    "headroom": 20,
    "ended": 4,
    "told": 2,
}
"""Law → how often it is put to the test at least; together: raises of several namespaces with one
write; ended: promises, of which some are withdrawn and told."""


def test_the_laws_of_elastic_quotas_hold() -> None:
    """Several quotas, edits, lost objects, promises, plans, two leaders: one step each.

    What a seed comes to depends on the order of sets, which differs from process to process. So
    there are as many worlds as it takes to put each law to the test.
    """
    tried: Counter[str] = Counter()

    def seldom() -> dict[str, int]:
        return {law: tried[law] for law in ELASTIC if tried[law] < ELASTIC[law]}

    for seed in range(160):
        if seed < 40 or seldom():
            tried += _elastic(seed).tried
    assert seldom() == {}


def _drop_promises_with_a_raise(patch: Patch) -> None:
    def without_promises(grants: Grants, namespace: str, wanted: Raise) -> Grants:
        return replace(raised(grants, namespace, wanted), promises={})

    patch.setattr("webhook.state.grant_raising.raised", without_promises)


def _give_more_than_is_needed(patch: Patch) -> None:
    def more(grants: Grants, namespace: str, wanted: Raise) -> Grants:
        return with_raised(grants, namespace, add(wanted.held, wanted.need))

    patch.setattr("webhook.state.grant_raising.raised", more)


def _take_all_that_is_free(patch: Patch) -> None:
    def headroom(shared: Shared, namespace: str, wanted: ResourceList) -> ResourceList:
        others = shared.grants.held_elsewhere(namespace)
        return {
            name: max(ZERO, most - others.get(name, ZERO) - wanted.get(name, ZERO))
            for name, most in shared.quota.quota.hard.items()
        }

    patch.setattr(escrow, "headroom", headroom)


def _deny_what_others_hold_unused(patch: Patch) -> None:
    patch.setattr(batch_decision, "_without_headroom", lambda decision, *_: decision)


def _withdraw_no_promise(patch: Patch) -> None:
    patch.setattr(Promises, "withdraw", lambda *_: True)


def _withdraw_without_a_word(patch: Patch) -> None:
    def end(
        reconciler: PromiseReconciler,
        promises: Mapping[str, HeldPromise],
        _ends: object,
        epoch: int,
    ) -> None:
        reconciler.promises.withdraw(promises, epoch)

    patch.setattr(PromiseReconciler, "_end", end)


def _let_borrowers_go_first(patch: Patch) -> None:
    patch.setattr(precedence, "owners_first", lambda queue, _shares, _reserved: tuple(queue))


def _overlook_what_others_hold_of(is_overlooked: Callable[[str], bool]) -> Callable[[Patch], None]:
    def beside(
        genuine: Beside, ledger: Ledger, namespace: str, shared: Mapping[str, Shared | None]
    ) -> Ledger:
        seen = {name: one for name, one in shared.items() if not is_overlooked(name)}
        return genuine(ledger, namespace, seen)

    return lambda patch: wrap(patch, grant_raising, "beside", beside)


def _claim_whatever_is_wanted(patch: Patch) -> None:
    patch.setattr(Balance, "claim", lambda *_: Claim.FAIR)


def _put_no_victim_back(patch: Patch) -> None:
    patch.setattr("webhook.quota.elastic.reclaim_plan._Attempt._needed", lambda _, units, __: units)


def _guarantee_twice_as_much(patch: Patch) -> None:
    def guaranteed(genuine: Callable[..., dict[str, int]], *what: Any) -> dict[str, int]:
        return {key: amount * 2 for key, amount in genuine(*what).items()}

    wrap(patch, Pool, "guaranteed", guaranteed)


def _label_all_but_the_newest(patch: Patch) -> None:
    def over_quota(genuine: Callable[..., Any], quota: Any, ordered: Any) -> Any:
        return genuine(quota, ordered[:-1])

    wrap(patch, capacity, "over_quota", over_quota)


def _count_a_composite_once_per_namespace(patch: Patch) -> None:
    def size(pool: Pool, resource: str) -> int:
        quotas = [one for one in pool.quotas.values() if resource in one.min]
        return sum(one.min[resource].nano * len(one.namespaces) for one in quotas)

    patch.setattr(Pool, "size", size)


ELASTIC_BREACHES: Mapping[str, tuple[str, range, Callable[[Patch], None]]] = {
    "E1: what others hold of a max is overlooked": (
        "E1",
        range(200),
        _overlook_what_others_hold_of(lambda name: name != POOL),
    ),
    "E2: what others hold of a pool is overlooked": (
        "E2",
        range(1, 200, 3),
        _overlook_what_others_hold_of(lambda name: name == POOL),
    ),
    "E2: what is not lent is given to others": (
        "",
        range(54, 2000, 5),
        _give_what_is_kept_to_others,
    ),
    "E2: what is promised is given to others": (
        "",
        range(39, 2000, 5),
        _give_what_is_promised_to_others,
    ),
    "E1, E2: each is decided as if it came alone": (
        "E[12]",
        range(43, 1000, 4),
        _decide_each_as_if_it_came_alone,
    ),
    "E3, G: raised before all are named": ("(E3|G)", range(2, 600), _raise_before_all_are_counted),
    "E4: more is given than is needed": ("E4", range(100), _give_more_than_is_needed),
    "E4: all that is free is headroom": ("E4", range(100), _take_all_that_is_free),
    "E4: what is unused is denied": ("E4", range(28, 300), _deny_what_others_hold_unused),
    "E5: borrowers go first": ("E5", range(300), _let_borrowers_go_first),
    "E6: a raise drops promises": ("E6", range(4, 600, 5), _drop_promises_with_a_raise),
    "E6: promises have no end": ("E6", range(4, 600, 5), _withdraw_no_promise),
    "E6: withdrawn without a word": ("E6", range(4, 600, 5), _withdraw_without_a_word),
    "E7, E9: whatever is wanted is claimed": ("E[79]", range(4, 100), _claim_whatever_is_wanted),
    "E8: victims that are not needed are not put back": (
        "E8",
        range(149, 600, 5),
        _put_no_victim_back,
    ),
    "E10: twice as much is guaranteed": ("E10", range(100), _guarantee_twice_as_much),
    "E11: the newest pod is never over": ("E11", range(100), _label_all_but_the_newest),
    "E12: a composite counts once per namespace": (
        "E12",
        range(100),
        _count_a_composite_once_per_namespace,
    ),
}


@pytest.mark.parametrize(
    ("law", "seeds", "breach"), ELASTIC_BREACHES.values(), ids=ELASTIC_BREACHES
)
def test_a_broken_law_of_elastic_quotas_is_noticed(
    law: str, seeds: range, breach: Callable[[Patch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    breach(monkeypatch)
    with pytest.raises(AssertionError, match=f"^{law}"):
        _search_elastic(seeds)


def _search_elastic(seeds: range) -> None:
    for seed in seeds:
        _elastic(seed)
