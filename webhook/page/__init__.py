"""Read-only page of the controller: what people may see of quotas, queues and pods, over HTTP.

It writes nothing but reviews of tokens and rights. All that is shown of a cluster is plain values
here; the browser makes text nodes of them, never markup.
"""

from webhook.page.app import PageParts, create_page
from webhook.page.history import UsageHistory

__all__ = ["PageParts", "UsageHistory", "create_page"]
