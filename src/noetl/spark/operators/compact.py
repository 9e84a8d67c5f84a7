"""The operator `compact`: the same rows in few files of a good size."""

from __future__ import annotations

import math
from typing import Final

from noetl.errors import InputError
from noetl.spark.operators.port import Given, Made
from noetl.spark.reading import input_files

_TARGET_BYTES: Final = 128 << 20


def compact(given: Given) -> Made:
    """Return the rows of the one input so that they are written as few files."""
    if len(given.inputs) != 1:
        raise InputError(f"compact takes one input, and job {given.work.grant.job!r} has {len(given.inputs)}")
    wanted = given.config.get("target_bytes", _TARGET_BYTES)
    if not isinstance(wanted, int) or wanted < 1:
        raise InputError("config.target_bytes of compact is the size of a file in bytes, a whole number above 0")
    held = sum(entry.bytes for entry in input_files(given.work.grant.inputs[0], given.work.manifests))
    (rows,) = given.inputs.values()
    return Made({0: rows.coalesce(max(1, math.ceil(held / wanted)))})
