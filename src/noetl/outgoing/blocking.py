"""Sessions of `requests` for clients that block: every connection goes to an address that was judged, redirects too."""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import Any

from noetl.outgoing.reach import Reach


def guarded_session(reach: Reach) -> Any:
    """Return a session whose connections are judged one by one; no proxy is used and no redirect followed far."""
    import requests
    from requests.adapters import HTTPAdapter
    from urllib3.connection import HTTPConnection, HTTPSConnection
    from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

    def connect(connection: Any) -> socket.socket:
        addresses = [str(one) for one in reach.resolved_now(connection.host, connection.port)]
        timeout = connection.timeout if isinstance(connection.timeout, int | float) else 30.0
        for address in addresses[:-1]:
            with suppress(OSError):
                return socket.create_connection((address, connection.port), timeout)
        return socket.create_connection((addresses[-1], connection.port), timeout)

    class Plain(HTTPConnection):
        def _new_conn(self) -> socket.socket:
            return connect(self)

    class Safe(HTTPSConnection):
        def _new_conn(self) -> socket.socket:
            return connect(self)

    class PlainPool(HTTPConnectionPool):
        ConnectionCls = Plain

    class SafePool(HTTPSConnectionPool):
        ConnectionCls = Safe

    class Adapter(HTTPAdapter):
        def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
            super().init_poolmanager(*args, **kwargs)
            self.poolmanager.pool_classes_by_scheme = {"http": PlainPool, "https": SafePool}

    session = requests.Session()
    session.trust_env = False
    session.max_redirects = 2
    for scheme in ("http://", "https://"):
        session.mount(scheme, Adapter())
    return session
