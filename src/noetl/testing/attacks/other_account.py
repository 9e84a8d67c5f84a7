"""Requests of another account on the same machine: a user id and a request go in, what the server answered comes out."""

from __future__ import annotations

import subprocess
import sys
from typing import Final

STRANGER: Final = 54_321
"""A user id that nobody has."""
NOBODY: Final = 65_534
"""The user id that also stands for all that are not known."""

# The rights go after everything is imported, what a first connection imports too: another account may not read the library.
_PROGRAMME: Final = """
import encodings.idna, os, socket, sys
user, port, leaves = map(int, sys.argv[1:])
sent = sys.stdin.buffer.read()
os.setgroups([])
os.setgid(user)
os.setuid(user)
with socket.create_connection(("127.0.0.1", port), timeout=20) as made:
    made.sendall(sent)
    if leaves:
        # A socket that its process has closed is listed as root's.
        os._exit(0)
    while piece := made.recv(65536):
        sys.stdout.buffer.write(piece)
"""


def answered_as(user: int, port: int, sent: bytes) -> bytes:
    """Send bytes under a user id, which takes root's rights, and return all that comes until the connection closes."""
    asked = [sys.executable, "-I", "-c", _PROGRAMME, str(user), str(port), "0"]
    return subprocess.run(asked, input=sent, capture_output=True, check=True, timeout=30).stdout


def sent_and_left(user: int, port: int, sent: bytes) -> None:
    """Send bytes under a user id and be gone before the server can look who sent them."""
    asked = [sys.executable, "-I", "-c", _PROGRAMME, str(user), str(port), "1"]
    subprocess.run(asked, input=sent, capture_output=True, check=True, timeout=30)
