"""How large the largest stories are: all of it, unless CI asks for a short form of them."""

from __future__ import annotations

import os
from typing import Final

IS_SHORT: Final = os.environ.get("DEFERRED_QUOTA_E2E") == "short"
"""The same stories with fewer pods and namespaces."""
