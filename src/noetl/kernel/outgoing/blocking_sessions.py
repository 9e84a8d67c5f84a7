"""Sessions of `requests` for clients that block: every connection goes to an address that was judged, within bounds.

A request has one deadline for all of it, an answer a largest size, and no redirect is followed.
"""

from __future__ import annotations

import socket
from typing import Any, Final

from noetl.kernel.outgoing.deadlines import Deadline, connected
from noetl.kernel.outgoing.guard import Reach

SECONDS: Final = 30.0
"""How long a request may take, with everything in it."""
MOST_BYTES: Final = 1_000_000
_PIECE: Final = 16_384


def guarded_session(reach: Reach, *, seconds: float = SECONDS, most_bytes: int = MOST_BYTES) -> Any:
    """Return a session for one thread whose connections are judged one by one; no proxy is used, no redirect followed."""
    import requests
    from requests.adapters import HTTPAdapter
    from requests.exceptions import ContentDecodingError, RequestException, Timeout
    from urllib3.connection import HTTPConnection, HTTPSConnection
    from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
    from urllib3.exceptions import HTTPError

    under_way: list[Deadline] = []

    def connect(connection: Any) -> socket.socket:
        addresses = [str(one) for one in reach.resolved_now(connection.host, connection.port)]
        timeout = connection.timeout if isinstance(connection.timeout, int | float) else seconds
        return connected(addresses, connection.port, min(timeout, seconds), under_way[-1])

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

        def send(self, request: Any, *args: Any, **kwargs: Any) -> Any:
            # A connection that was kept from before would be watched by nobody.
            request.headers["Connection"] = "close"
            with Deadline(seconds) as deadline:
                under_way.append(deadline)
                try:
                    answer = super().send(request, *args, **{**kwargs, "stream": True})
                    _read(answer)
                except (RequestException, HTTPError, OSError):
                    if deadline.passed:
                        raise Timeout(f"the request took longer than {seconds:g} seconds") from None
                    raise
                finally:
                    under_way.pop()
            if deadline.passed:
                raise Timeout(f"the request took longer than {seconds:g} seconds")
            return answer

    def _read(answer: Any) -> None:
        """Read all of an answer: the size in its head is no bound, for it may be packed."""
        pieces, size = [], 0
        for piece in answer.iter_content(_PIECE):
            size += len(piece)
            if size > most_bytes:
                answer.close()
                raise ContentDecodingError(f"the answer is larger than {most_bytes} bytes")
            pieces.append(piece)
        answer._content = b"".join(pieces)

    session = requests.Session()
    session.trust_env = False
    session.max_redirects = 0
    for scheme in ("http://", "https://"):
        session.mount(scheme, Adapter())
    return session
