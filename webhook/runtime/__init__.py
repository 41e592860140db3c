"""Build and wire the objects of one process; nothing is decided here.

- `engine`: the handlers of one cluster, its controller, or both, and what they share.
- `controller_manager`, `controller_options`: the control loops of a process, and their options.
- `effective_configuration`: the configuration, as far as it is in force beside the registrations.
- `embedded_server`: an engine over a fake cluster; `processes`: one over an API server;
  `server_parts`: the parts of the admission server that are made of an engine.
- `certificate_watch`, `certificate_rotation`: the certificate that is served, and its renewal.
- `page_server`: the page of the controller.
"""

from webhook.runtime.controller_options import ControllerOptions
from webhook.runtime.engine import Engine, EngineOptions

__all__ = ["ControllerOptions", "Engine", "EngineOptions"]
