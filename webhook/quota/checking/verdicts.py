"""Judge the objects of a namespace one after the other, as an API server would get them.

Each takes what it is given of the quotas, so that the next finds it taken. When all stand, the
rollouts are judged: each beside as many others as may be under way at the same time.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from webhook.quota.amounts.quantity import ZERO, Quantity
from webhook.quota.amounts.resources import (
    ResourceList,
    add,
    mask,
    positive_part,
    remove_zeros,
    subtract,
    total_of,
)
from webhook.quota.charging.constraints import missing_resources, obliging_keys
from webhook.quota.charging.coverage import uncovered_assignment
from webhook.quota.charging.deferral import TOO_LARGE, QuotaScopeError, uncountable_fields
from webhook.quota.charging.denials import MustSpecify, QuotaExceeded
from webhook.quota.charging.evaluation import over_hard
from webhook.quota.charging.pod_usage import charged_to, usage_of
from webhook.quota.charging.scopes import ScopeError, matches
from webhook.quota.charging.workload_pods import times
from webhook.quota.checking.values import (
    Balance,
    Issue,
    PodGroup,
    Result,
    Rule,
    Subject,
    Terms,
    Verdict,
)
from webhook.quota.explaining.values import Shortage
from webhook.quota.objects.model import Pod


@dataclass(slots=True)
class _Account:
    """A balance while objects are charged to it."""

    balance: Balance
    used: ResourceList
    holder: tuple[int, str] | None = None
    """Priority and name of the first that waits for it and holds those behind it."""
    surges: dict[str, list[int]] = field(default_factory=dict)
    """Resource → amounts that rollouts take besides, the smallest first where only some count."""


@dataclass(frozen=True, slots=True)
class _Demand:
    """Claim of one group on one account."""

    account: _Account
    usage: ResourceList
    """Of one pod."""
    at_bind: bool
    """Whether the pods wait for it without a node; one that is created with a node does not."""
    charged: int = 0
    """How many of the pods exist, and are charged already: they stay."""


@dataclass(slots=True)
class _Former:
    """What the former pods of an object took of one account."""

    total: ResourceList
    parts: list[ResourceList]
    """Of each pod that no group of the object has taken over."""

    def take_over(self, usage: ResourceList, most: int) -> int:
        """Return how many pods of a usage were charged already, up to some number."""
        self.parts.sort(key=lambda part: part != usage)  # the larger ones may be of other groups
        taken = 0
        rest: list[ResourceList] = []
        for part in self.parts:
            if taken < most and all(amount <= part.get(key, ZERO) for key, amount in usage.items()):
                taken += 1
            else:
                rest.append(part)
        self.parts = rest
        return taken


@dataclass(frozen=True, slots=True)
class _Rolling:
    """A group that is rolled out later."""

    group: PodGroup
    demands: tuple[_Demand, ...]
    former: tuple[ResourceList, ...]
    """What the former pods took of each account beyond what the new ones do."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The answer about the objects of a namespace."""

    results: tuple[Result, ...]
    used: Mapping[str, ResourceList]
    """Quota that is charged at the bind → what is used of it afterwards."""


def check_namespace(
    subjects: Sequence[Subject], terms: Terms, *, rollouts: int | None = None
) -> Outcome:
    """Judge the objects of one namespace in the order in which they are created.

    Args:
        subjects: The objects.
        terms: What is known of the namespace.
        rollouts: How many rollouts there may be at the same time; None: all of them.
    """
    return _Check(terms, rollouts).run(subjects)


class _Check:
    def __init__(self, terms: Terms, rollouts: int | None) -> None:
        self._terms = terms
        self._rollouts = rollouts
        self._accounts = [_Account(one, one.used, one.holder) for one in terms.balances]
        self._rolling: list[tuple[int, _Rolling]] = []

    def run(self, subjects: Sequence[Subject]) -> Outcome:
        issues = [list(self._issues(index, one)) for index, one in enumerate(subjects)]
        for index, rolling in self._rolling:
            if _all_stay(issues[index]):
                issues[index] += self._rollout(rolling)
        results = [Result(one, tuple(found)) for one, found in zip(subjects, issues, strict=True)]
        late = [one for one in self._accounts if one.balance.at_bind]
        return Outcome(tuple(results), {one.balance.name: one.used for one in late})

    def _issues(self, index: int, subject: Subject) -> Iterator[Issue]:
        refused = list(subject.refusals or self._charged_object(subject))
        yield from refused or subject.issues
        if not refused:
            yield from self._charged_made(subject)
        if not (refused or subject.issues):
            former: dict[int, _Former] = {}
            for group in subject.groups:
                yield from self._group(index, subject, group, former)

    def _charged_object(self, subject: Subject) -> Iterator[Issue]:
        """Charge the object itself; yield why it is refused, for each quota."""
        accounts = self._plain_accounts()
        denials = [(one, denial) for one in accounts if (denial := _over(one, subject.usage))]
        for account, denial in denials:
            yield Issue(
                Rule.OBJECT_QUOTA,
                Verdict.REFUSED,
                f'{subject.resource} "{subject.name}" is forbidden: {denial.message}',
                quota=denial.quota,
                shortages=_shortages(denial, account),
            )
        for account in () if denials else accounts:
            account.used = add(account.used, mask(subject.usage, account.balance.hard))

    def _charged_made(self, subject: Subject) -> Iterator[Issue]:
        for account in self._plain_accounts() if subject.made else ():
            denial = _over(account, subject.made)
            if denial is None:
                account.used = add(account.used, mask(subject.made, account.balance.hard))
                continue
            text = f"what its controller makes is refused: {denial.message}"
            shortages = _shortages(denial, account)
            yield Issue(
                Rule.OBJECT_QUOTA, Verdict.WAITS, text, quota=denial.quota, shortages=shortages
            )

    def _plain_accounts(self) -> list[_Account]:
        """Return the accounts that objects other than pods are charged to: those without scopes."""
        return [
            one
            for one in self._accounts
            if not (
                one.balance.at_bind or one.balance.quota.scopes or one.balance.quota.expressions
            )
        ]

    def _group(
        self, index: int, subject: Subject, group: PodGroup, former: dict[int, _Former]
    ) -> Iterator[Issue]:
        if not group.count:
            self._give_back(subject, former)
            return
        try:
            applying = self._applying(group.pod)
            refused = list(self._refusals(group, applying))
        except QuotaScopeError as err:
            text = f"scopes of quota {err.quota} cannot be evaluated: {err}"
            yield Issue(Rule.QUOTA_SCOPES, Verdict.REFUSED, text, group.field, err.quota)
            return
        yield from refused
        if refused:
            return
        usage, is_assigned = usage_of(group.pod, now=None), group.pod.is_assigned
        if self._terms.undecided:
            text = _forbidden(group.pod, f"no node is given to it: {self._terms.undecided}")
            is_refused = subject.resource == "pods" and is_assigned and not subject.held
            verdict = Verdict.REFUSED if is_refused else Verdict.WAITS
            yield Issue(Rule.QUOTA_BOUNDS, verdict, text, group.field)
        uncountable = self._uncountable(group.pod)
        if uncountable:
            text = _forbidden(group.pod, f"no node is given to it: {uncountable}")
            yield Issue(Rule.NEVER_FITS, Verdict.NEVER_FITS, text, group.field)
        self._give_back(subject, former)
        most = 0 if subject.is_replaced else group.count
        demands = tuple(
            _demand(one, usage, former.get(id(one)), most, is_assigned=is_assigned)
            for one in applying
        )
        is_bound = not (self._terms.undecided or uncountable)
        found = list(self._charge(subject, group, demands, is_bound=is_bound))
        yield from found
        if group.surge and not uncountable and _all_stay(found):
            beyond = tuple(
                _beyond(former.get(id(one.account)), one, group.count) for one in demands
            )
            self._rolling.append((index, _Rolling(group, demands, beyond)))

    def _uncountable(self, pod: Pod) -> str:
        """Return what a pod asks for that no bind admits, whatever the quotas limit."""
        terms = self._terms
        fields = uncountable_fields(pod, terms.deferred_keys) if terms.is_deferred else ()
        return f"{', '.join(fields)} {TOO_LARGE}" if fields else ""

    def _applying(self, pod: Pod) -> list[_Account]:
        found = []
        for one in self._accounts:
            try:
                if matches(one.balance.quota, pod):
                    found.append(one)
            except ScopeError as err:
                raise QuotaScopeError(one.balance.name, err) from err
        return found

    def _refusals(self, group: PodGroup, applying: Iterable[_Account]) -> Iterator[Issue]:
        """Yield the rules of quotas that refuse a pod whatever is used."""
        pod, terms = group.pod, self._terms
        uncovered = None
        if terms.coverage.limited or terms.coverage.required:
            uncovered = uncovered_assignment(pod, terms.quotas, terms.coverage)
        if uncovered is not None:
            yield Issue(
                Rule.QUOTA_REQUIRED,
                Verdict.REFUSED,
                _forbidden(pod, uncovered.message),
                group.field,
            )
        for account in applying:
            if account.balance.at_bind and not terms.must_specify:
                continue
            unsaid = missing_resources(
                pod, obliging_keys(account.balance.name, account.balance.hard)
            )
            if unsaid:
                yield Issue(
                    Rule.MUST_SPECIFY,
                    Verdict.REFUSED,
                    _forbidden(pod, MustSpecify(account.balance.name, unsaid).message),
                    f"{group.field}.spec.containers".removeprefix("."),
                    account.balance.name,
                    unstated=tuple(unsaid),
                )

    def _give_back(self, subject: Subject, former: dict[int, _Former]) -> None:
        """Take the former pods of an object out of the accounts, once for all of its groups."""
        if former:
            return
        for account in self._accounts if subject.held else ():
            parts: list[ResourceList] = []
            for pod in subject.held:
                is_charged = not account.balance.at_bind or (
                    pod.is_assigned or pod.uid in subject.reserved
                )
                if is_charged and _selects(account, pod):
                    parts.append(_part(charged_to(pod), account))
            total = total_of(parts)
            former[id(account)] = _Former(total, parts)
            account.used = {**account.used, **_less(account.used, total)}

    def _charge(
        self, subject: Subject, group: PodGroup, demands: Sequence[_Demand], *, is_bound: bool
    ) -> Iterator[Issue]:
        """Charge as many pods as have room; yield what keeps the others."""
        early = [one for one in demands if not one.at_bind]
        late = [one for one in demands if one.at_bind]
        created = min([_room(one, group.count) for one in early], default=group.count)
        if group.pod.is_assigned and not (is_bound or subject.held):
            created = 0
        rooms = [one.charged if _holder(one, group.pod) else _room(one, created) for one in late]
        started = min(rooms, default=created) if is_bound else 0
        for one in demands:
            yield from _kept(subject, group, one)
        # what never fits holds nothing
        waits = self._terms.is_strict and not any(map(_never_fits, late))
        for one in late if waits else ():
            if _room(one, created) < created:
                _hold(one.account, subject, group)
        for one in demands:
            count = started if one.at_bind else created
            one.account.used = add(one.account.used, times(one.usage, count))

    def _rollout(self, rolling: _Rolling) -> Iterator[Issue]:
        group = rolling.group
        for demand, former in zip(rolling.demands, rolling.former, strict=True):
            account = demand.account
            extra = add(times(demand.usage, group.surge), former)
            beside = {key: Quantity.of_nano(self._beside(account, key)) for key in extra}
            name, hard = account.balance.name, account.balance.hard
            denial = over_hard(name, extra, add(account.used, beside), hard)
            if denial is not None:
                yield _stuck(group, account, denial, demand)
            for key, amount in extra.items():
                self._remember(account, key, amount.nano)

    def _beside(self, account: _Account, key: str) -> int:
        return sum(account.surges.get(key, ()))

    def _remember(self, account: _Account, key: str, nano: int) -> None:
        """Keep an amount, if it is among the largest that may be under way beside another."""
        kept = account.surges.setdefault(key, [])
        if self._rollouts is None:
            kept[:] = [sum(kept) + nano]
            return
        heapq.heappush(kept, nano)
        if len(kept) > self._rollouts - 1:
            heapq.heappop(kept)


def _kept(subject: Subject, group: PodGroup, demand: _Demand) -> Iterator[Issue]:
    """Yield what keeps some of the pods, by one quota."""
    balance = demand.account.balance
    if demand.charged >= group.count:
        yield from _over_quota(group, demand)
        return
    denial = _over(demand.account, demand.usage)
    if denial is not None and _never_fits(demand):
        yield Issue(
            Rule.NEVER_FITS,
            Verdict.NEVER_FITS,
            f"{_forbidden(group.pod, denial.message)}; one pod alone is larger than the quota",
            group.field,
            balance.name,
            _shortages(denial, demand.account),
        )
        return
    room = _room(demand, group.count)
    holder = _holder(demand, group.pod)
    if room < group.count:
        yield _short(subject, group, demand, room)
    elif holder:
        text = f"waits behind {holder}, which waits for quota {balance.name}"
        yield Issue(Rule.QUEUE, Verdict.WAITS, text, group.field, balance.name)


def _over_quota(group: PodGroup, demand: _Demand) -> Iterator[Issue]:
    """Yield that pods are there although there would be no room for the last of them now."""
    account, count = demand.account, group.count
    others = add(account.used, times(demand.usage, count - 1))
    denial = over_hard(account.balance.name, demand.usage, others, account.balance.hard)
    if denial is None:
        return
    rule, late = Rule.QUOTA_EXCEEDED, "be refused"
    if account.balance.at_bind:
        rule, late = Rule.QUOTA_WAIT, "wait"
    stay = (
        "the pod is there already and stays"
        if count == 1
        else f"all {count} pods are there already and stay"
    )
    yield Issue(
        rule,
        Verdict.ADMITTED,
        f"{stay}; a new one would {late}: {denial.message}",
        group.field,
        account.balance.name,
        _shortages(denial, account),
    )


def _all_stay(issues: Iterable[Issue]) -> bool:
    """Return whether issues are warnings at most."""
    return all(one.verdict is Verdict.ADMITTED for one in issues)


def _demand(
    account: _Account,
    usage: ResourceList,
    former: _Former | None,
    most: int,
    *,
    is_assigned: bool,
) -> _Demand:
    part = _part(usage, account)
    charged = 0 if former is None else former.take_over(part, most)
    return _Demand(account, part, account.balance.at_bind and not is_assigned, charged)


def _never_fits(demand: _Demand) -> bool:
    hard = demand.account.balance.hard
    return any(amount > hard[key] for key, amount in demand.usage.items())


def _short(subject: Subject, group: PodGroup, demand: _Demand, room: int) -> Issue:
    account = demand.account
    name = account.balance.name
    total = times(demand.usage, group.count)
    denial = over_hard(name, total, account.used, account.balance.hard)
    message = "" if denial is None else denial.message
    shortages = () if denial is None else _shortages(denial, account)
    if subject.resource == "pods" and not demand.at_bind:
        text = _forbidden(group.pod, message)
        return Issue(Rule.QUOTA_EXCEEDED, Verdict.REFUSED, text, group.field, name, shortages)
    left = group.count - room
    if demand.at_bind:
        late = "waits" if left == 1 else "wait"
    else:
        late = f"{'is' if left == 1 else 'are'} refused until there is room"
    text = f"{left} of {_pods(group.count)} {late}: {message}"
    return Issue(Rule.QUOTA_WAIT, Verdict.WAITS, text, group.field, name, shortages)


def _holder(demand: _Demand, pod: Pod) -> str:
    """Return what holds a pod back that asks for a quota for which others wait; empty if none."""
    holder = demand.account.holder
    if holder is None or not (demand.usage and demand.at_bind):
        return ""
    return holder[1] if (pod.priority or 0) <= holder[0] else ""


def _hold(account: _Account, subject: Subject, group: PodGroup) -> None:
    if account.holder is None:
        account.holder = group.pod.priority or 0, f"{subject.kind} {subject.name}"


def _beyond(former: _Former | None, demand: _Demand, count: int) -> ResourceList:
    """Return what the former pods took of a quota beyond what the new ones do."""
    before = {} if former is None else former.total
    return remove_zeros(positive_part(subtract(before, mask(times(demand.usage, count), before))))


def _stuck(group: PodGroup, account: _Account, denial: QuotaExceeded, demand: _Demand) -> Issue:
    """Return what a rollout without room for all of its surge comes to."""
    one = over_hard(account.balance.name, demand.usage, account.used, account.balance.hard)
    is_stuck = group.is_surge_needed and one is not None
    how = "stands still" if is_stuck else "goes on more slowly"
    return Issue(
        Rule.ROLLOUT,
        Verdict.WAITS if is_stuck else Verdict.ADMITTED,
        f"a rollout {how}: no room for {_pods(group.surge)} more: {denial.message}",
        group.field,
        account.balance.name,
        _shortages(denial, account),
    )


def _over(account: _Account, usage: ResourceList) -> QuotaExceeded | None:
    balance = account.balance
    return over_hard(balance.name, usage, account.used, balance.hard)


def _part(usage: ResourceList, account: _Account) -> ResourceList:
    return remove_zeros(mask(usage, account.balance.hard))


def _less(used: ResourceList, given_back: ResourceList) -> ResourceList:
    return positive_part(subtract(mask(used, given_back), mask(given_back, used)))


def _room(demand: _Demand, count: int) -> int:
    """Return how many of some pods have room now, those that are there already among them."""
    least = min(count, demand.charged)
    used, hard = demand.account.used, demand.account.balance.hard
    for key, amount in demand.usage.items():
        left = hard[key].nano - used.get(key, ZERO).nano
        count = min(count, max(0, left // amount.nano)) if amount.nano > 0 else count
    return max(count, least)


def _shortages(denial: QuotaExceeded, account: _Account) -> tuple[Shortage, ...]:
    reserved = account.balance.reserved
    return tuple(
        Shortage(key, amount, denial.used[key], reserved.get(key, ZERO), denial.limited[key])
        for key, amount in sorted(denial.requested.items())
    )


def _selects(account: _Account, pod: Pod) -> bool:
    try:
        return matches(account.balance.quota, pod)
    except ScopeError:
        return False


def _forbidden(pod: Pod, message: str) -> str:
    return f'pods "{pod.name or pod.generate_name}" is forbidden: {message}'


def _pods(count: int) -> str:
    return "1 pod" if count == 1 else f"{count} pods"
