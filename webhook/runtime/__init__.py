"""Build and wire the objects of one process; nothing is decided here.

- `engine`: the doors of one cluster, its controller, or both, and what they share.
- `control`: the controller's parts.
- `embedded`, `live`: an engine over a cluster in memory, or over an API server, as a process.
"""

from webhook.runtime.control import ControlOptions
from webhook.runtime.engine import Engine, EngineOptions, check_configuration

__all__ = ["ControlOptions", "Engine", "EngineOptions", "check_configuration"]
