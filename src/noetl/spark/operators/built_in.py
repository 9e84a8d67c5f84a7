"""The operators `quality_check` and `compact`: checks over the rows of an input, and the same rows in fewer files."""

from __future__ import annotations

import math
from typing import Any, Final

import msgspec

from noetl.errors import InputError
from noetl.language.dag.model import Check
from noetl.spark.lake.reader import input_files, input_schema
from noetl.spark.operators.checks import run_checks
from noetl.spark.operators.footer_checks import Subject
from noetl.spark.operators.port import Given, Made

_REPORT: Final = "input string, check string, passed boolean, severity string, violations bigint, detail string"


def quality_check(given: Given) -> Made:
    """Check every input and tell how it came out; with an output, also as one row per check."""
    checks = configured(given.config.get("checks"), given.work.grant.checks)
    if not checks:
        raise InputError(f"quality_check of job {given.work.grant.job!r} has no checks")
    found = []
    for one in given.work.grant.inputs:
        if one.where:
            raise InputError(f"quality_check reads whole partitions: input {one.alias!r} must not have `where`")
        files = tuple(input_files(one, given.work.manifests))
        subject = Subject(schema=input_schema(one, given.work.manifests), files=files)
        (results,) = run_checks(given.session, checks, [subject], given.lake)
        found += [(one.alias, result) for result in results]
    rows = [(alias, one.label, one.passed, one.severity, one.violations, one.detail) for alias, one in found]
    outputs = {0: given.session.createDataFrame(rows, _REPORT)} if given.work.grant.targets else {}
    return Made(outputs, tuple(result for _, result in found))


def configured(*given: Any) -> tuple[Check, ...]:
    """Return the checks of a configuration, each a mapping of `kind` and what it needs."""
    try:
        return tuple(check for some in given if some for check in msgspec.convert(some, tuple[Check, ...]))
    except msgspec.ValidationError as error:
        raise InputError(f"the checks of the job are not well formed: {error}") from error


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
