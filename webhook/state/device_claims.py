"""ResourceClaims of a namespace, as far as quotas are charged for them."""

from __future__ import annotations

from collections.abc import Sequence

from webhook.kube.api import RESOURCE_CLAIMS, ClusterApi, ForbiddenError, ListOptions, NotFoundError
from webhook.kube.pager import list_pages
from webhook.quota.charging.device_claims import DeviceClaim


def list_device_claims(api: ClusterApi, namespace: str) -> Sequence[DeviceClaim] | None:
    """Return the claims of a namespace; None where they may not be listed.

    An API server that does not serve `resource.k8s.io/v1` charges no extended resource for any
    (kubernetes v1.34, pkg/quota/v1/install/registry.go), so there are none then.

    Raises:
        ApiError: The API server does not answer.
        InvalidFieldError: A claim cannot be read.
    """
    try:
        return [
            DeviceClaim.from_object(revision.object)
            for page in list_pages(api, RESOURCE_CLAIMS, ListOptions(namespace), newest=0)
            for revision in page.items
        ]
    except NotFoundError:
        return ()
    except ForbiddenError:
        return None
