"""What every `ClusterApi` must do, the twin and a real API server alike.

Each class is one part of the contract. A test module makes them its own:

    class OnMemory(ClusterContract):
        @pytest.fixture
        def api(self) -> ClusterApi: ...

    class TestWrites(OnMemory, WriteContract): ...

Nothing here needs more than the port itself; what only the twin can do is tested elsewhere.
"""
