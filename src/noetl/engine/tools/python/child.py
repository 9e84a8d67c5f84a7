"""The process that runs users' code: a request comes in, an answer goes out, one at a time, until the worker hangs up.

Loaded by path in interpreters that may lack NoETL, so it imports the standard library alone, and as little as it can.
"""

from __future__ import annotations

import _thread
import fcntl
import json
import os
import resource
import sys

TYPE_CHECKING = False  # typing itself takes longer to load than all the rest here
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_HEADER = 8
_ANSWER_ROOM = 4_096  # what an answer may take around the result


def serve(
    settings: dict[str, Any],
    code: Any,
    given_names: Callable[..., dict[str, Any]],
    results: Any,
    plain: Callable[[Any], Any],
) -> None:
    """Answer requests until the other end of the channel closes; `code` is the module of that name."""
    channel: int = settings["channel"]
    fcntl.fcntl(channel, fcntl.F_SETFD, fcntl.FD_CLOEXEC)
    os.register_at_fork(after_in_child=lambda: os.close(channel))
    _bound(settings["memory_bytes"])
    sys.path[:0] = settings["sys_path"]
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True, errors="backslashreplace")  # type: ignore[union-attr]
    child = _Child(channel, settings["max_result"], code, given_names, results, plain)
    while (request := child.receive()) is not None:
        child.answer(request)


def _bound(memory_bytes: int) -> None:
    # What libraries reserve and never touch counts for RLIMIT_AS, but not for Linux's RLIMIT_DATA.
    kind = resource.RLIMIT_DATA if sys.platform == "linux" else resource.RLIMIT_AS
    hardest = resource.getrlimit(kind)[1]
    if hardest == resource.RLIM_INFINITY or memory_bytes < hardest:
        resource.setrlimit(kind, (memory_bytes, memory_bytes))


class _Child:
    """What lasts from call to call: compiled code, and the surroundings every call starts from."""

    def __init__(
        self,
        channel: int,
        max_result: int,
        code: Any,
        given_names: Callable[..., dict[str, Any]],
        results: Any,
        plain: Callable[[Any], Any],
    ) -> None:
        self._channel = channel
        self._asking = _thread.allocate_lock()  # threads of the code may look into its context
        self._served: Any = None
        self._max_result = max_result
        self._code = code
        self._given_names = given_names
        self._results = results
        self._plain = plain
        self._compiled: dict[str, Any] = {}
        self._streams = (sys.stdout, sys.stderr)
        self._environment = dict(os.environ)
        self._directory = os.getcwd()  # noqa: PTH109 - pathlib takes long to load
        self._path = list(sys.path)

    def receive(self) -> Any:
        """Return the next message, or None when the worker has closed the channel."""
        head = self._read(_HEADER)
        body = head and self._read(int.from_bytes(head, "big"))
        return None if body is None else json.loads(body)

    def answer(self, request: dict[str, Any]) -> None:
        """Run one request and send its answer."""
        try:
            answer = self._answer(request)
        except MemoryError:
            # From here on the interpreter may lack what it needs, so it is not used again.
            message = "the code ran out of the memory it may take; raise memory_mb or work in smaller pieces"
            problem = {"kind": "unknown", "code": "memory_limit", "exception_type": "MemoryError", "message": message}
            answer = _encoded({"problem": problem, "spent": True})
        except BaseException as problem:
            answer = _encoded({"problem": self._code.explained(problem), "spent": self._leaves_something()})
        self._write(answer)

    def _answer(self, request: dict[str, Any]) -> bytes:
        code = self._compiled.get(request["digest"])
        if code is None:
            code = self._compiled[request["digest"]] = self._code.compiled(request["code"])
        self._served = request
        try:
            result = self._run(code, request)
        finally:
            with self._asking:
                self._served = None
        answer = _encoded({"result": result, "spent": self._leaves_something()})
        if len(answer) > self._max_result + _ANSWER_ROOM:
            raise self._code.Refused(
                kind="transform",
                code="result_too_large",
                message=f"the result takes {len(answer)} bytes as JSON, more than the {self._max_result} allowed; "
                "write it to a store and return where it is",
            )
        return answer

    def _run(self, code: Any, request: dict[str, Any]) -> Any:
        """Return what the code came to in plain values."""
        given = self._results.named(request["input"])
        beside = self._given_names(
            given,
            request["execution_id"],
            lambda names: self._results.named(self._sent({"wanted": names, "once": True}, request)),
            lambda: self._sent({"wanted": None}, request)["names"],
        )
        result = self._code.run(code, given, beside, lambda names: self._ask(names, request))
        try:
            return self._plain(result)
        except ValueError as problem:
            message = f"the result cannot be passed on: {problem}"
            raise self._code.Refused(kind="transform", code="result_not_plain", message=message) from None

    def _ask(self, names: list[str], request: dict[str, Any]) -> dict[str, Any]:
        """Return those names that the scope has; the worker sends along what the same code asked for before."""
        found: dict[str, Any] = request["scope"]
        if not set(names).issubset(request["looked_up"]):
            found = self._sent({"wanted": names}, request)
        named: dict[str, Any] = self._results.named({name: found[name] for name in names if name in found})
        return named

    def _sent(self, message: dict[str, Any], request: dict[str, Any]) -> Any:
        """Ask the worker something on behalf of a request that is being served."""
        with self._asking:
            if self._served is not request:
                raise RuntimeError("the context can be looked at only while its task runs")
            self._write(_encoded(message))
            return self.receive()

    def _leaves_something(self) -> bool:
        """Put the surroundings back, and tell whether the call left something running that the next would meet."""
        try:
            for stream in (sys.stdout, sys.stderr, *self._streams):
                stream.flush()
            if os.environ != self._environment:
                os.environ.clear()
                os.environ.update(self._environment)
            os.chdir(self._directory)
        except (OSError, ValueError, AttributeError):
            return True
        sys.path[:] = self._path
        sys.stdout, sys.stderr = self._streams
        threads = sys.modules.get("threading")
        return (threads is not None and threads.active_count() > 1) or _has_children()

    def _read(self, size: int) -> bytes | None:
        pieces = bytearray()
        while len(pieces) < size:
            piece = os.read(self._channel, min(size - len(pieces), 1 << 20))
            if not piece:
                return None
            pieces += piece
        return bytes(pieces)

    def _write(self, body: bytes) -> None:
        sent = os.writev(self._channel, [len(body).to_bytes(_HEADER, "big"), body])
        left = memoryview(body)[sent - _HEADER :]
        while left:
            left = left[os.write(self._channel, left) :]


def _encoded(message: dict[str, Any]) -> bytes:
    return json.dumps(message, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True
