"""The fake API server behind REST paths on a local port, for the REST client to speak to."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from werkzeug.serving import WSGIRequestHandler, make_server

from webhook.fakecluster.rest.apiserver import ApiServer
from webhook.fakecluster.storage import FakeCluster
from webhook.kube.rest import RestClient, RestConfig
from webhook.kube.rest.identity import Credentials, Identity

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication


class _Http11(WSGIRequestHandler):
    """Keeps connections, and is silent."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log(self, type: str, message: str, *args: object) -> None:  # noqa: A002 - its name there
        """Say nothing."""


def plain_access(port: int) -> RestConfig:
    """Access to a port of this machine, without TLS and as nobody."""
    server = f"http://127.0.0.1:{port}"
    return RestConfig(server=server, source="a test", credentials=Credentials(Identity))


@contextmanager
def served(
    cluster: FakeCluster, app: Callable[[FakeCluster], WSGIApplication] = ApiServer
) -> Iterator[RestClient]:
    """Serve a cluster, as an application that is made of it, and give a client of it."""
    server = make_server("127.0.0.1", 0, app(cluster), threaded=True, request_handler=_Http11)
    server.daemon_threads = True  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    client = RestClient(plain_access(server.server_port))
    try:
        yield client
    finally:
        client.close()
        cluster.cut_watches()
        server.shutdown()
        server.server_close()
        thread.join()
