"""Settings shared by all tests."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "steady",  # machines differ and are shared: no test fails for being slow
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
settings.load_profile("steady")
