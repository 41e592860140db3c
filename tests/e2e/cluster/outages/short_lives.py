"""The program with certificates that live for seconds: `short_lives LEAF CA PUBLISH ARGUMENTS`.

A serving certificate lives for LEAF seconds and a CA for CA; a new CA is in every registration for
PUBLISH seconds before it signs. The lease of a leader is as much shorter, so that another one takes
over in the third of a life in which a certificate is to be renewed.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Final

from webhook.cli import main as run
from webhook.controllers.runtime import election
from webhook.runtime import certificate_rotation
from webhook.tls import issue, rotation_store
from webhook.tls.rotation import RotationSpec

_BACKDATE: Final = timedelta(seconds=1)
_ELECTION: Final = partial(
    election.ElectionTimings, lease_seconds=6, renew_seconds=4.5, retry_seconds=1.0
)


def main() -> None:
    """Shorten the lives, and run the program."""
    leaf, ca, publish = (timedelta(seconds=float(each)) for each in sys.argv[1:4])
    spec_for = rotation_store.spec_for

    def short(namespace: str) -> RotationSpec:
        spec = spec_for(namespace)
        return replace(spec, leaf_lifetime=leaf, ca_lifetime=ca, publish_time=publish)

    certificate_rotation.spec_for = short  # type: ignore[attr-defined]
    issue.BACKDATE = _BACKDATE  # type: ignore[misc] # two thirds of a life count from its begin
    election.ElectionTimings = _ELECTION  # type: ignore[assignment, misc]
    sys.argv = ["deferred-quota", *sys.argv[4:]]
    run()


if __name__ == "__main__":
    main()
