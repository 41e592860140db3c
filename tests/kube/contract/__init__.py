"""What every `ClusterApi` must do, the fake API server and a real API server alike.

Each class is one part of the contract. A test module makes them its own:

    class OnMemory(ClusterContract):
        @pytest.fixture
        def api(self) -> ClusterApi: ...

    class TestWrites(OnMemory, WriteContract): ...

Nothing here needs more than the port itself; what only the fake API server can do is tested
elsewhere.
"""
