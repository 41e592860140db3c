"""Settings shared by all tests."""

import gc
import signal

from hypothesis import HealthCheck, settings

settings.register_profile(
    "steady",  # machines differ and are shared: no test fails for being slow
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
settings.load_profile("steady")

# In the background of a script nobody listens to the keyboard, and neither would what tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)

# What is made until all tests are known stays: to look through it again and again for what could be
# forgotten took half of the time in which tests are collected.
gc.disable()


def pytest_collection_finish() -> None:
    """Look for what can be forgotten from here on, and only among what tests make."""
    gc.freeze()
    gc.enable()
