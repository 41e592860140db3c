"""What the programs are called with."""

from __future__ import annotations

import json
from pathlib import Path

from tests.controlplane.arguments import (
    Extras,
    Ports,
    apiserver_arguments,
    controller_manager_arguments,
    etcd_arguments,
    scheduler_arguments,
    scheduler_configuration,
)

PORTS = Ports(etcd=1, apiserver=2, scheduler=3, controller_manager=4)
KEYS = {name: Path("/k", name) for name in ("ca", "certificate", "key", "signing", "checking")}


def value(arguments: list[str], flag: str) -> str:
    """The value that stands: the last."""
    return [text for name, _, text in (one.partition("=") for one in arguments) if name == flag][-1]


def all_arguments(extras: Extras) -> dict[str, list[str]]:
    return {
        "apiserver": apiserver_arguments(KEYS, PORTS, extras),
        "controller_manager": controller_manager_arguments(KEYS, Path("/c"), PORTS, extras),
        "scheduler": scheduler_arguments(Path("/s"), PORTS, extras),
    }


def test_every_program_listens_on_loopback_at_its_own_port() -> None:
    for name, arguments in all_arguments(Extras()).items():
        assert value(arguments, "--bind-address") == "127.0.0.1"
        assert value(arguments, "--secure-port") == str(getattr(PORTS, name))
    etcd = etcd_arguments(Path("/d"), "http://127.0.0.1:1")
    assert value(etcd, "--listen-client-urls") == "http://127.0.0.1:1"
    assert value(all_arguments(Extras())["apiserver"], "--etcd-servers") == "http://127.0.0.1:1"


def test_a_flag_of_the_test_stands_against_ours() -> None:
    extras = Extras(
        apiserver=["--authorization-mode=AlwaysAllow"],
        controller_manager=["--kube-api-qps=5"],
    )
    found = all_arguments(extras)
    assert value(found["apiserver"], "--authorization-mode") == "AlwaysAllow"
    assert value(found["controller_manager"], "--kube-api-qps") == "5"


def test_feature_gates_go_to_all_three() -> None:
    extras = Extras(feature_gates={"B": False, "A": True})
    for arguments in all_arguments(extras).values():
        assert value(arguments, "--feature-gates") == "A=true,B=false"
    for arguments in all_arguments(Extras()).values():
        assert not any(one.startswith("--feature-gates") for one in arguments)


def test_nothing_waits_for_the_heartbeat_of_a_node() -> None:
    chosen = value(all_arguments(Extras())["controller_manager"], "--controllers").split(",")
    assert "*" in chosen
    assert {"-node-lifecycle-controller", "-taint-eviction-controller"} <= set(chosen)


def test_pods_need_no_service_account_where_nothing_makes_them() -> None:
    bare = apiserver_arguments(KEYS, PORTS, Extras(), has_service_accounts=False)
    assert value(bare, "--disable-admission-plugins") == "ServiceAccount"
    whole = apiserver_arguments(KEYS, PORTS, Extras())
    assert not any(one.startswith("--disable-admission-plugins") for one in whole)


def test_the_server_that_checks_tokens_has_the_public_half_of_what_signs_them() -> None:
    found = all_arguments(Extras())
    assert value(found["apiserver"], "--service-account-key-file") == "/k/checking"
    assert value(found["apiserver"], "--service-account-signing-key-file") == "/k/signing"
    signing = value(found["controller_manager"], "--service-account-private-key-file")
    assert signing == "/k/signing"


def test_a_configuration_of_a_cluster_is_taken_over_but_for_its_connection() -> None:
    given = {
        "clientConnection": {"kubeconfig": "/etc/kubernetes/scheduler.conf"},
        "leaderElection": {"leaderElect": True},
        "extenders": [{"urlPrefix": "https://192.0.2.7/scheduler"}],
    }
    configuration = json.loads(scheduler_configuration(Path("/c"), Extras(), given))
    assert configuration["extenders"] == given["extenders"]
    assert configuration["clientConnection"]["kubeconfig"] == "/c"
    assert configuration["leaderElection"] == {"leaderElect": False}


def test_fields_of_the_test_are_in_the_schedulers_configuration() -> None:
    text = scheduler_configuration(Path("/c"), Extras(scheduler={"podMaxBackoffSeconds": 1}))
    configuration = json.loads(text)
    assert configuration["podMaxBackoffSeconds"] == 1
    assert configuration["clientConnection"]["kubeconfig"] == "/c"
