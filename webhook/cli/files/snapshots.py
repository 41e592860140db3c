"""Options of commands that work on a snapshot, and the engine behind them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from webhook.cli.cluster_options import snapshot_errors
from webhook.cli.exit_codes import InputError
from webhook.config import ConfigurationFile
from webhook.controllers.runtime.timings import ControllerTimings
from webhook.fakecluster.manifests.loading import load_cluster
from webhook.fakecluster.storage import FakeClient, FakeCluster
from webhook.runtime import ControllerOptions, Engine, EngineOptions
from webhook.telemetry.metrics import Metrics

READY_SECONDS: Final = 60.0


def read_cluster(paths: Sequence[Path]) -> FakeCluster:
    """Read snapshot files into an embedded cluster.

    Raises:
        InputError: One cannot be read; the text has file, document and field.
    """
    with snapshot_errors(paths):
        return load_cluster(paths)


@contextmanager
def running_engine(
    cluster: FakeCluster, configuration: ConfigurationFile | None
) -> Iterator[Engine]:
    """Run an engine over an embedded cluster until the block is left.

    Raises:
        InputError: The cluster holds something that keeps quotas from being counted.
    """
    engine = Engine(
        FakeClient(cluster),
        Metrics(),
        EngineOptions(
            configuration,
            controller=ControllerOptions(
                timings=ControllerTimings(write_interval_seconds=0.001, fold_seconds=0.0)
            ),
        ),
    )
    engine.start()
    try:
        missing = engine.wait_until_counted(READY_SECONDS)
        if missing:
            raise InputError(missing)
        yield engine
    finally:
        engine.stop()
