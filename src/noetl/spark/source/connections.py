"""Connections that read the ledger as Arrow: one read-only transaction at a time, bound to one organization.

Values never become part of a statement: they travel as one bound parameter into a setting of the transaction, from
which the statement reads them, because PostgreSQL's COPY, the fast way out, takes no parameters.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

import pyarrow as pa

from noetl.errors import Denied, NoetlError, Unavailable, Unsupported
from noetl.spark.source.options import SourceOptions

_CONNECT_SECONDS: Final = "10"
_GIVEN: Final = "noetl_source.given"
_BEGIN: Final = (
    "SELECT set_config('transaction_read_only', 'on', true), set_config('role', $1, true),"
    " set_config('noetl.tenant', $2, true), set_config('noetl.organization', $3, true),"
    " set_config('timezone', 'UTC', true), set_config('jit', 'off', true),"
    # The planner does not see the values, and would sort what an index gives in order.
    " set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),"
    " set_config('enable_sort', 'off', true)"
)
_GIVE: Final = "SELECT set_config($1, $2, true)"
_DENIED: Final = ("42501", "28000", "28P01")
_OLD_SCHEMA: Final = ("42P01", "3F000", "42703")
_LOST: Final = ("08", "53", "57P")


def given(place: int, kind: str) -> str:
    """Return the expression that stands for a value of the statement, computed once."""
    return f"(SELECT (current_setting('{_GIVEN}')::jsonb ->> {place})::{kind})"


def given_list(place: int, kind: str) -> str:
    """Return the expression that stands for a list among the values of the statement, computed once."""
    return f"(ARRAY(SELECT jsonb_array_elements_text(current_setting('{_GIVEN}')::jsonb -> {place}))::{kind}[])"


@contextmanager
def transaction(options: SourceOptions) -> Iterator[Transaction]:
    """Give a read-only transaction that sees one organization, or all where the role may and there is no scope."""
    key = _login(options)
    with translated(options):
        connection, cursor = _begun(options, key)
        try:
            yield Transaction(cursor)
            cursor.close()
            connection.rollback()
        except BaseException:
            # Whatever was under way, be it half a COPY, ends with the connection.
            ended(connection, cursor)
            raise
        IDLE.keep(key, connection)


def _begun(options: SourceOptions, key: str) -> tuple[Any, Any]:
    from adbc_driver_postgresql import dbapi  # type: ignore[import-untyped]

    scope = options.scope
    bound = (options.role, scope.tenant_id if scope else "", scope.organization_id if scope else "")
    connection = IDLE.take(key)
    if connection is not None:
        with suppress(Exception):  # it may have been cut off meanwhile; whether the server is there, a new one tells
            return connection, _bound(connection, bound)
        ended(connection, None)
    connection = dbapi.connect(key)
    try:
        return connection, _bound(connection, bound)
    except BaseException:
        ended(connection, None)
        raise


def _bound(connection: Any, bound: tuple[str, ...]) -> Any:
    cursor = connection.cursor()
    try:
        cursor.execute(_BEGIN, bound)
        cursor.fetchall()
    except BaseException:
        cursor.close()
        raise
    return cursor


class Transaction:
    """An open transaction."""

    def __init__(self, cursor: Any) -> None:
        self._cursor = cursor

    def run(self, statement: str) -> None:
        """Run a statement that gives nothing."""
        self._cursor.execute(statement)

    def rows(self, statement: str, values: Sequence[Any] = ()) -> list[dict[str, Any]]:
        """Return the few rows a statement gives."""
        return [row for batch in self.batches(statement, values) for row in batch.to_pylist()]

    def batches(self, statement: str, values: Sequence[Any] = ()) -> Iterator[pa.RecordBatch]:
        """Give what a statement gives, as it comes."""
        self._cursor.execute(_GIVE, (_GIVEN, json.dumps(values)))
        self._cursor.fetchall()
        self._cursor.execute(statement)
        reader = self._cursor.fetch_record_batch()
        try:
            yield from reader
        finally:
            reader.close()


def _login(options: SourceOptions) -> str:
    """Return the URL to connect with, which names the role where one logs in as it."""
    parts = urlsplit(options.url)
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    query.setdefault("connect_timeout", _CONNECT_SECONDS)
    query.setdefault("application_name", options.role)
    if options.as_roles:
        query["user"] = options.role
    return urlunsplit(parts._replace(query=urlencode(query, quote_via=quote)))


@contextmanager
def translated(options: SourceOptions) -> Iterator[None]:
    """Turn errors of the driver into ours, without the URL and without the driver's own error behind them."""
    from adbc_driver_manager import Error

    try:
        yield
    except NoetlError:
        raise
    except (Error, pa.ArrowException, OSError) as problem:
        translation = _translated(problem, options.url)
    else:
        return
    raise translation from None


def _translated(problem: Exception, url: str) -> NoetlError:
    state = str(getattr(problem, "sqlstate", None) or "")
    said = _without_secrets(str(problem), url)
    if state in _DENIED:
        return Denied(f"PostgreSQL refuses to read the ledger, whose role the login must be granted: {said}")
    if state in _OLD_SCHEMA:
        return Unsupported(f"the database schema is missing or old, run `noetl db migrate`: {said}")
    if not state or state.startswith(_LOST):
        return Unavailable(f"PostgreSQL does not answer, `noetl db status` shows which server is meant: {said}")
    return Unsupported(f"PostgreSQL cannot read the ledger: {said}")


def _without_secrets(text: str, url: str) -> str:
    parts = urlsplit(url)
    secrets = {url, parts.password or "", unquote(parts.password or "")}
    secrets |= {value for name, value in parse_qsl(parts.query) if name == "password"}
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        text = text.replace(secret, "***")
    return re.sub(r"postgres(?:ql)?://\S+", "***", text).strip()


_SECONDS: Final = 60.0
_MOST: Final = 2


def ended(connection: Any, cursor: Any = None) -> None:
    """Close a connection in whatever state it is."""
    with suppress(Exception):
        if cursor is not None:
            cursor.close()
        connection.close()


class IdleConnections:
    """Connections by the login they were opened with, each for a minute after its last use."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._held: dict[str, list[tuple[Any, float]]] = {}
        atexit.register(self.close)

    def take(self, login: str) -> Any:
        """Return a connection that was used a moment ago, or None."""
        with self._lock:
            stale = self._stale()
            held = self._held.get(login)
            connection, _ = held.pop() if held else (None, 0.0)
        for one in stale:
            ended(one)
        return connection

    def keep(self, login: str, connection: Any) -> None:
        """Keep a connection, or close it where there are enough."""
        with self._lock:
            closing = self._stale()
            held = self._held.setdefault(login, [])
            if len(held) < _MOST:
                held.append((connection, time.monotonic()))
            else:
                closing.append(connection)
        for one in closing:
            ended(one)

    def close(self) -> None:
        """Close what is kept."""
        with self._lock:
            self._forget_parents()
            held, self._held = self._held, {}
        for connection, _ in (pair for pairs in held.values() for pair in pairs):
            ended(connection)

    def _stale(self) -> list[Any]:
        """Take out what has been idle for too long."""
        self._forget_parents()
        since = time.monotonic() - _SECONDS
        found = [one for pairs in self._held.values() for one, used in pairs if used < since]
        fresh = {login: [pair for pair in pairs if pair[1] >= since] for login, pairs in self._held.items()}
        self._held = {login: pairs for login, pairs in fresh.items() if pairs}
        return found

    def _forget_parents(self) -> None:
        # A forked process leaves its parent's connections alone; closing them would end them for the parent too.
        if self._process != os.getpid():
            _PARENTS.append(self._held)
            self._process, self._held = os.getpid(), {}


_PARENTS: Final[list[Any]] = []
"""Kept from being collected, which would close them."""

IDLE: Final = IdleConnections()
"""Those of this process."""
