"""Names in the cluster that more than one part of the program goes by."""

from __future__ import annotations

from typing import Final

SYSTEM_NAMESPACE: Final = "deferred-quota-system"
LEADER_LEASE: Final = "deferred-quota-controller"
"""The Lease with which controllers elect a leader."""
REGISTRATION: Final = "deferred-quota"
"""Name of the mutating and of the validating webhook configuration."""
BIND_ENTRY: Final = "bind.deferredquota.io"
"""The entry of the validating one that is asked about every bind."""
GUARDED_ANNOTATION: Final = "deferredquota.io/guarded"
"""Written on the Binding, it lands on the pod: this pod came through the guard at its bind."""

MODE_LABEL: Final = "deferredquota.io/mode"
DEFERRED_MODE: Final = "deferred"
KNOWN_MODES: Final = (DEFERRED_MODE, "shadow")
