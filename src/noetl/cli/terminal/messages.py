"""What a role says to whoever runs it: a sentence goes in, a line goes out, and nothing fails where nobody reads it.

A role works for others than its reader, so the end of `| head` or of a terminal is no reason to stop or to fail.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TextIO

import click


def tell(sentence: str, *, err: bool = False) -> None:
    """Say something to the operator at once, also where output goes to a file."""
    try:
        click.echo(sentence, err=err)
    except (OSError, ValueError):
        let_go(sys.stderr if err else sys.stdout)


def warn(sentence: str) -> None:
    """Say what the user had better look at, beside what a command prints."""
    tell(f"warning: {sentence}", err=True)


def let_go(stream: TextIO | None) -> None:
    """Send what is still said to a stream nowhere: what is left in its buffer must not fail again at exit."""
    if stream is None:
        return
    # One that was closed altogether has no place left to send anything to.
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nowhere, stream.fileno())
        finally:
            os.close(nowhere)


def occupy() -> None:
    """See that what a process is started without leads nowhere: else its first socket would be taken for its output."""
    for place in (0, 1, 2):
        try:
            os.fstat(place)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free, which is this one
