"""Build and wire the objects of one process; nothing is decided here.

- `engine`: the handlers of one cluster, its controller, or both, and what they share.
- `controller_manager`: the controller's parts.
- `embedded_server`, `processes`: an engine over a fake cluster, or over an API server, as a process.
"""

from webhook.runtime.controller_options import ControllerOptions
from webhook.runtime.engine import Engine, EngineOptions

__all__ = ["ControllerOptions", "Engine", "EngineOptions"]
