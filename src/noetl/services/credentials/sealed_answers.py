"""Secrets on their way to a worker: values and what worker and server share go in, a sealed text comes out, and the way back.

No answer of the API has a secret in the clear: whoever reads one without the shared secret reads random bytes.
"""

from __future__ import annotations

import base64
import binascii
import secrets
from typing import Any

import orjson
from blake3 import blake3
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from noetl.errors import Denied
from noetl.services.credentials.secret import Secret

_CONTEXT = "noetl secrets for a worker, version 1"
_NONCE = 12


def seal_answer(shared: Secret, value: Any) -> str:
    """Encrypt a JSON value for whoever knows the shared secret."""
    nonce = secrets.token_bytes(_NONCE)
    return base64.b64encode(nonce + _cipher(shared).encrypt(nonce, orjson.dumps(value), None)).decode()


def open_answer(shared: Secret, sealed: str) -> Any:
    """Decrypt what was sealed with the same secret, or raise `Denied`."""
    try:
        data = base64.b64decode(sealed, validate=True)
        return orjson.loads(_cipher(shared).decrypt(data[:_NONCE], data[_NONCE:], None))
    except (InvalidTag, binascii.Error, ValueError):
        raise Denied(
            "the server sealed its secrets for other workers than this one",
            hint="start the worker with the server's home directory, or with a token of the role worker",
        ) from None


def _cipher(shared: Secret) -> AESGCM:
    # Both a token and the secret on disk are long and random, so deriving a key takes no stretching.
    return AESGCM(blake3(shared.reveal().encode(), derive_key_context=_CONTEXT).digest())
