"""Reads quantities as Kubernetes writes them: `500m` of a processor, `128Mi` of memory."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any, Final

from noetl.errors import InputError

_QUANTITY: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)([A-Za-z]*)")
_UNITS: Final = {
    "": Decimal(1),
    "m": Decimal("0.001"),
    **{unit: Decimal(1000) ** power for power, unit in enumerate(("k", "M", "G", "T", "P", "E"), 1)},
    **{unit: Decimal(1024) ** power for power, unit in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)},
}


def memory_bytes(quantity: Any) -> int:
    """Return bytes for text such as `128Mi`."""
    return int(_read(quantity, "memory"))


def cpus(quantity: Any) -> float:
    """Return processors for text such as `500m`."""
    return float(_read(quantity, "cpu"))


def _read(quantity: Any, what: str) -> Decimal:
    found = _QUANTITY.fullmatch(str(quantity).strip())
    if found is None or found[2] not in _UNITS:
        raise InputError(f"resources: {quantity!r} is no amount of {what}; write it as 500m or 128Mi")
    return Decimal(found[1]) * _UNITS[found[2]]
