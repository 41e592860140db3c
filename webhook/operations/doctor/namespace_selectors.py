"""Namespaces that the selectors of a registration select, and requests that its rules do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from webhook.kube.kinds import NAMESPACE_NAME_LABEL
from webhook.operations.findings import Finding, Subject, error, first_of, warning
from webhook.state.webhook_selectors import WebhookSelector
from webhook.state.well_known import (
    ALWAYS_GATING,
    DEFERRED_MODE,
    GATING_LABEL,
    GATING_MODES,
    MODE_LABEL,
    NEVER_GATING,
    SHADOW_MODE,
)

APPLY: Final = "Run scripts/install, or apply the shipped manifests again."
_MOST_NAMED: Final = 5

ANY_NAMESPACE: Final[Mapping[str, str]] = {NAMESPACE_NAME_LABEL: "-"}
"""Labels of some namespace that has not opted in, with a name that none has: no selector leaves it
out by that."""
OPTED_IN: Final[Mapping[str, str]] = {**ANY_NAMESPACE, MODE_LABEL: DEFERRED_MODE}


def restore(subject: Subject, apply: str = APPLY) -> str:
    """Return what brings back an object to which something was added.

    A server-side apply alone does not: it leaves what other clients have added.
    """
    edit = f"kubectl edit {subject.kind.lower()} {subject.name}"
    return f"{apply} What another client added there stays: remove that with {edit}"


def selection_findings(
    selector: WebhookSelector,
    subject: Subject,
    field: str,
    opted_in: Iterable[Mapping[str, str]],
    *,
    is_strict: bool,
    sample: Mapping[str, str] = OPTED_IN,
) -> Iterable[Finding]:
    """Compare what a registration selects with the namespaces that have opted in.

    Args:
        selector: Its namespace selector.
        subject: Whose it is.
        field: Its path.
        opted_in: Labels of the namespaces that have opted in.
        is_strict: Whether the registration refuses requests when the webhook does not answer.
        sample: Labels that it has to select, of whatever namespace, with the mode of all of these.
    """
    judge = error if is_strict else warning
    mode = sample[MODE_LABEL]
    left_out = tuple(_name(labels) for labels in opted_in if not selector.matches(labels))
    if left_out:
        yield judge(
            "registration.not-selecting",
            subject,
            f"{field} leaves out namespaces that have opted in: {first_of(left_out, _MOST_NAMED)}",
            f"Let it select {MODE_LABEL}: {mode}, as the shipped manifests do.",
            left_out,
        )
    elif not selector.matches(sample):
        yield warning(
            "registration.not-selecting",
            subject,
            f"{field} does not select every namespace with {MODE_LABEL}: {mode}",
            "Apply the shipped manifests again, unless namespaces are left out on purpose.",
        )
    if selector.matches(ANY_NAMESPACE):
        yield judge(
            "registration.widened",
            subject,
            f"{field} selects namespaces that have not opted in",
            "Apply the shipped manifests again: an outage of the webhook, or a mask, must concern"
            " only namespaces that have opted in.",
        )
    elif mode == DEFERRED_MODE and selector.matches({**ANY_NAMESPACE, MODE_LABEL: SHADOW_MODE}):
        yield judge(
            "registration.widened",
            subject,
            f"{field} selects namespaces in shadow mode, where nothing may be refused or changed",
            APPLY,
        )


def own_namespace_findings(
    selectors: Mapping[str, tuple[WebhookSelector, str]], subject: Subject, system_namespace: str
) -> Iterable[Finding]:
    """Find the webhooks that would be called for the namespace of the installation.

    Args:
        selectors: Name of a webhook → its namespace selector, and the mode that it is for.
        subject: Whose they are.
        system_namespace: The namespace; its label that opts in makes the difference.
    """
    named = {**OPTED_IN, NAMESPACE_NAME_LABEL: system_namespace}
    reaching = [
        name
        for name, (selector, mode) in selectors.items()
        if selector.matches({**named, MODE_LABEL: mode})
    ]
    if reaching:
        yield warning(
            "registration.own-namespace",
            subject,
            f"{'webhooks' if reaching[1:] else 'webhook'} {', '.join(reaching)}: namespaceSelector"
            f" does not leave out {system_namespace}: where that is labelled, our own pods cannot"
            " come back after an outage",
            APPLY,
        )


def gate_findings(
    selector: WebhookSelector,
    subject: Subject,
    field: str,
    opted_in: Iterable[Mapping[str, str]],
    *,
    gating: str,
) -> Iterable[Finding]:
    """Compare which namespaces have their pods gated with those that want it.

    Args:
        selector: The namespace selector of the entry that gates.
        subject: Whose it is.
        field: Its path.
        opted_in: Labels of the namespaces that have opted in.
        gating: What the configuration says for those without a label.
    """
    known = tuple(opted_in)
    wanting = [labels for labels in known if _gating(labels, gating) != NEVER_GATING]
    sample = {**OPTED_IN, GATING_LABEL: ALWAYS_GATING}
    yield from selection_findings(selector, subject, field, wanting, is_strict=False, sample=sample)
    spared = [labels for labels in known if _gating(labels, gating) == NEVER_GATING]
    spared.append({**OPTED_IN, NAMESPACE_NAME_LABEL: "", GATING_LABEL: NEVER_GATING})
    taken = tuple(_name(labels) for labels in spared if selector.matches(labels))
    if taken:
        which = first_of(tuple(filter(None, taken)), _MOST_NAMED)
        yield warning(
            "registration.gating",
            subject,
            f"{field} selects namespaces whose gating is {NEVER_GATING}" + (which and f": {which}"),
            APPLY,
        )


def findings_for(mode: str) -> Callable[..., Iterable[Finding]]:
    """Return what compares an entry for namespaces of one gating with those, as `gate_findings`."""

    def findings(
        selector: WebhookSelector,
        subject: Subject,
        field: str,
        opted_in: Iterable[Mapping[str, str]],
        *,
        gating: str,
    ) -> Iterable[Finding]:
        wanting = [labels for labels in opted_in if _gating(labels, gating) == mode]
        sample = {**OPTED_IN, GATING_LABEL: mode}
        return selection_findings(selector, subject, field, wanting, is_strict=False, sample=sample)

    return findings


def _gating(labels: Mapping[str, str], configured: str) -> str:
    """Return the gating by the label of today; the handler itself reads the former one, too."""
    value = labels.get(GATING_LABEL, configured)
    return value if value in GATING_MODES else configured


def _name(labels: Mapping[str, str]) -> str:
    return labels.get(NAMESPACE_NAME_LABEL, "(unnamed)")
