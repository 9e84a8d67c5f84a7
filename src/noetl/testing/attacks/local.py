"""What code of a task tries on the machine it runs on: each text is the code of a `python` task, with its input named in it.

Each returns what it got hold of, so that an empty result is what a test asks for.
"""

from __future__ import annotations

from typing import Final

READ_SECRETS: Final = """
import os
found = []
for path in paths:
    try:
        if os.path.isdir(path):
            found += [os.path.join(path, name) for name in os.listdir(path)]
        elif open(path, "rb").read():
            found.append(path)
    except OSError:
        pass
for pid in os.listdir("/proc"):
    if pid.isdigit() and int(pid) != os.getpid():
        for path in paths:
            try:
                os.stat(f"/proc/{pid}/root{path}/.")
                found.append(f"{pid}: {path}")
            except OSError:
                pass
        try:
            if b"NOETL" in open(f"/proc/{pid}/environ", "rb").read():
                found.append(f"environment of {pid}")
        except OSError:
            pass
result = found
"""
"""Reads files, lists directories, and looks into the file systems and environments of other processes. Input: paths."""

UNCOVER: Final = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
undone = [path for path in paths if libc.umount2(path.encode(), 2) == 0]
if libc.unshare(0x10020000) == 0:  # a user namespace of its own, where it may mount
    undone += [path for path in paths if libc.umount2(path.encode(), 2) == 0]
for path in paths:
    try:
        undone += [os.path.join(path, name) for name in os.listdir(path)]
    except OSError:
        pass
result = undone
"""
"""Takes covers away and lists what was below them. Input: paths."""

ASK_DATABASE: Final = """
import socket, struct
said = []
def ask(family, address):
    with socket.socket(family) as link:
        link.settimeout(5)
        try:
            link.connect(address)
        except OSError:
            return
        names = b"user\\0noetl_admin\\0database\\0noetl\\0\\0"
        link.sendall(struct.pack("!II", 8 + len(names), 196608) + names)
        answer = link.recv(9)
        # An R with 0 lets in at once; anything else asks for a proof.
        if answer[:1] == b"R" and answer[5:9] == b"\\0\\0\\0\\0":
            said.append(str(address))
ask(socket.AF_UNIX, path)
ask(socket.AF_INET, ("127.0.0.1", port))
result = said
"""
"""Asks the database for the superuser's session without a password. Input: the path of its socket, and its port."""

ASK_NATS: Final = """
import socket
with socket.create_connection(("127.0.0.1", port), 5) as link:
    said = link.recv(4096)
    link.sendall(b'CONNECT {"verbose": true}\\r\\nPING\\r\\n')
    said = b""
    while piece := link.recv(4096):
        said += piece
        if b"PONG" in said:
            break
result = ["let in"] if b"PONG" in said else []
"""
"""Asks a NATS server for a session without a login. Input: its port."""

LEAVE_A_DAEMON: Final = """
import fcntl, os, signal
ready, tell = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        held = open(path, "w")
        fcntl.flock(held, fcntl.LOCK_EX)
        for standard in (0, 1, 2):
            os.close(standard)
        os.write(tell, b"x")
        while True:
            signal.pause()
    os._exit(0)
os.wait()
os.read(ready, 1)
result = "left"
"""
"""Leaves a process behind in a session of its own, which holds a lock and ignores polite signals. Input: path."""

TAKE_MEMORY: Final = """
import os
got, tell = os.pipe()
stay, never = os.pipe()
for _ in range(children):
    if os.fork() == 0:
        os.close(never)
        held = b"x" * size
        os.write(tell, b"x")
        os.close(tell)
        os.read(stay, 1)
        os._exit(0)
os.close(tell)
have = 0
while have < children and os.read(got, 1):
    have += 1
if have == children:
    os.read(stay, 1)
result = have
"""
"""Takes memory in many processes, each below its own bound, and keeps it once all have it. Input: children, size."""
