"""The `secrets` kind: the name of a secret goes in, a typed reference to it comes out and is recorded; its value never is.

Whoever reads the reference in a template of a task is given the value: later tasks of the list, and tasks of later steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

import msgspec

from noetl.engine.tools.outcome import Hidden, Outcome, failed, refusal
from noetl.engine.tools.port import Call
from noetl.errors import InputError, NoetlError, NotFound
from noetl.language.playbook.model import KeychainEntry
from noetl.language.playbook.secret_tasks import KIND, entry_of

REFERENCE: Final = "secret_ref"
"""The key of a mapping that stands for a secret."""
_SOURCE: Final = "source"
_WHOLE: Final = "value"


class SecretsTool:
    """Reads secrets of the providers a keychain has."""

    kind: ClassVar[str] = KIND

    async def run(self, call: Call) -> Outcome:
        """Read one secret; what is recorded of it says where it is."""
        if call.secret is None:
            return failed("schema", "this worker reads no secrets", source=self.kind, code="unsupported")
        try:
            if not call.options.get("secret"):
                raise InputError("secrets needs the name of a secret", hint="write secret: NAME")
            if call.auth is not None and not isinstance(call.auth, str):
                raise InputError("auth of secrets is the name of a credential")
            entry, key = entry_of(dict(call.options), call.auth), call.options.get("key")
            fields = await call.secret(entry)
            values = _values(fields, key)
        except (TypeError, ValueError):
            return failed("schema", "ttl of secrets is a number of seconds", source=self.kind)
        except NoetlError as error:
            return refusal(error, self.kind)
        return Outcome(data=_reference(entry, values, key), hidden=Hidden(_opened(entry, values, key)))


async def opened(data: Any, read: Any) -> Any:
    """Return what templates see of the recorded result of such a task: its secret, read again where it is kept."""
    if not isinstance(data, Mapping) or not isinstance(data.get(_SOURCE), Mapping):
        return data
    source = dict(data[_SOURCE])
    key = source.pop("key", None)
    entry = msgspec.convert(source, KeychainEntry)
    return _opened(entry, _values(await read(entry), key), key)


def _values(fields: Mapping[str, Any], key: Any) -> dict[str, Any]:
    if key is None:
        return dict(fields)
    if key not in fields:
        raise NotFound(f"the secret has no field {key!r}")
    return {_WHOLE: fields[key]}


def _opened(entry: KeychainEntry, values: Mapping[str, Any], key: Any) -> dict[str, Any]:
    whole = values[_WHOLE] if values.keys() == {_WHOLE} else dict(values)
    return {**_told(entry, key), _WHOLE: whole, "fields": dict(values)}


def _reference(entry: KeychainEntry, values: Mapping[str, Any], key: Any) -> dict[str, Any]:
    place = entry.name if key is None else f"{entry.name}#{key}"
    fields = {name: {REFERENCE: place if name == _WHOLE else f"{place}#{name}"} for name in values}
    return {**_told(entry, key), _WHOLE: {REFERENCE: place}, "fields": fields}


def _told(entry: KeychainEntry, key: Any) -> dict[str, Any]:
    """Return what may be known of a secret, with everything that is needed to read it again."""
    source = {name: getattr(entry, name) for name in ("name", "kind", "auth", "ttl", "options")}
    return {
        "provider": entry.options["provider"],
        "name": entry.options["secret"],
        "version": entry.options.get("version"),
        _SOURCE: {**source, **({} if key is None else {"key": key})},
    }
