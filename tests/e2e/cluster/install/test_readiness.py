"""What /readyz says when an installation is taken away under running processes."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.cluster.installed import a_cluster, a_product
from tests.e2e.cluster.waiting import eventually


def test_ready_processes_notice_that_the_definitions_are_gone_and_back(tmp_path: Path) -> None:
    with a_cluster(tmp_path) as cluster, a_product(cluster, tmp_path / "product") as product:
        for process in product.processes:
            assert process.ops("/readyz")[0] == 200
        definition = ("customresourcedefinition", "quotaledgers.deferredquota.io")
        cluster.plane.kubectl("delete", "--wait=true", *definition)
        for process in product.processes:
            eventually(lambda p=process: p.ops("/readyz")[0] == 503, "it is not ready", 40)  # type: ignore[misc]
            assert "quotaledgers.deferredquota.io is not installed" in process.ops("/readyz")[1]
        cluster.install()
        for process in product.processes:
            eventually(lambda p=process: p.ops("/readyz")[0] == 200, "it is ready", 60)  # type: ignore[misc]
