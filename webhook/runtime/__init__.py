"""Build and wire the objects of one process; nothing is decided here.

- `engine`: the handlers of one cluster, its controller, or both, and what they share.
- `controller_manager`: the controller's parts.
- `embedded_server`: an engine over a fake cluster; `processes`: one over an API server.
"""

from webhook.runtime.controller_options import ControllerOptions
from webhook.runtime.engine import Engine, EngineOptions

__all__ = ["ControllerOptions", "Engine", "EngineOptions"]
