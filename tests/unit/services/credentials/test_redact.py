"""The redactor finds secrets in all their forms and leaves everything else as it is."""

from __future__ import annotations

import base64
import html
import json
import logging
import re
from urllib.parse import quote, quote_plus, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetl.services.credentials.redactor import Redactor
from noetl.services.credentials.secret import MASK, Secret

CANARY = 'p@ss/wörd "6f1b" +\\n'
PEM = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0B\nAQEFAASCBKcwggSjAgEA\n-----END PRIVATE KEY-----\n"


def test_without_secrets_a_value_comes_back_as_it_is() -> None:
    value = {"a": ["b", 1, None]}
    assert Redactor().redact(value) is value


def test_a_value_without_the_secret_comes_back_as_it_is() -> None:
    value = {"a": ["b", 1, None, True, 2.5, ("c",)], "d": {"e": "f"}}
    assert Redactor([CANARY]).redact(value) is value


FORMS = {
    "plain": CANARY,
    "within": f"password={CANARY};",
    "json": json.dumps({"a": CANARY}),
    "json unescaped": json.dumps({"a": CANARY}, ensure_ascii=False),
    "json in json": json.dumps(json.dumps(CANARY)),
    "repr": repr({"a": CANARY}),
    "url": quote(CANARY, safe=""),
    "path": quote(CANARY),
    "form": urlencode({"password": CANARY}),
    "lower case url": re.sub("%..", lambda found: found[0].lower(), quote_plus(CANARY)),
    "html": html.escape(CANARY),
    "base64": base64.b64encode(CANARY.encode()).decode(),
    "base64 for urls": base64.urlsafe_b64encode(CANARY.encode()).decode().rstrip("="),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_secret_is_found_in_each_of_its_forms(form: str) -> None:
    redacted = Redactor([CANARY]).redact({"text": form})["text"]
    assert MASK in redacted
    for part in ("6f1b", "6F1B"):
        assert part not in redacted


@given(st.text(max_size=20), st.text(min_size=6, max_size=40), st.text(max_size=20), st.booleans())
def test_a_secret_is_found_in_base64_of_longer_text(before: str, secret: str, after: str, urls: bool) -> None:
    encode = base64.urlsafe_b64encode if urls else base64.b64encode
    encoded = encode((before + secret + after).encode("utf-8", "surrogatepass")).decode()
    redacted = Redactor([secret]).text(encoded)
    # Of the secret only the characters shared with its neighbours may be left, one on each side.
    hidden = len(encoded) - len(redacted.replace(MASK, ""))
    assert hidden >= len(secret.encode("utf-8", "surrogatepass")) * 8 // 6 - 2


def test_basic_authentication_is_found() -> None:
    header = "Basic " + base64.b64encode(b"ann:canary-6f1b").decode()
    redacted = Redactor(["canary-6f1b"]).text(header)
    assert redacted.startswith("Basic ")
    shown = redacted.removeprefix("Basic ").replace(MASK, "")
    assert len(shown) <= 7


def test_a_private_key_is_found_line_by_line() -> None:
    redactor = Redactor([PEM])
    for line in PEM.splitlines()[1:3]:
        assert redactor.text(f"log: {line}") == f"log: {MASK}"


def test_the_longest_secret_is_replaced_first() -> None:
    redactor = Redactor(["token", "token-and-more"])
    assert redactor.text("token-and-more token") == f"{MASK} {MASK}"


def test_secrets_are_found_in_keys_numbers_bytes_tuples_and_secrets() -> None:
    redactor = Redactor(["12345678", Secret("canary")])
    value = {"canary": 1, "pin": 12345678, "raw": b"a canary", "pair": ("x", "canary"), "whole": Secret("zzzz")}
    assert redactor.redact(value) == {
        MASK: 1,
        "pin": MASK,
        "raw": b"a ***",
        "pair": ("x", MASK),
        "whole": MASK,
    }


@given(st.text(min_size=4, max_size=12), st.text(max_size=5), st.text(max_size=5))
def test_in_a_list_of_values_a_secret_is_found_wherever_it_is_found_in_one(
    secret: str, before: str, after: str
) -> None:
    redactor = Redactor([secret])
    for value in (secret, {before: {after: [before + secret + after]}}, {secret: None}, (secret, 1)):
        told = redactor.redact({"rows": value})["rows"]
        assert redactor.redact([1, value]) == [redactor.redact({"one": 1})["one"], told]


def test_numbers_in_a_list_are_found() -> None:
    assert Redactor(["12345"]).redact([{"pin": 12345}, 7]) == [{"pin": MASK}, 7]


def test_what_is_added_later_is_found_too() -> None:
    redactor = Redactor()
    redactor.add("canary")
    redactor.add("second")
    assert redactor.redact(["canary", "second"]) == [MASK, MASK]
    assert "canary" not in repr(redactor)


def test_a_short_secret_is_left_with_one_warning_that_does_not_show_it(caplog: pytest.LogCaptureFixture) -> None:
    redactor = Redactor()
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            redactor.add("qzx", "")
    assert redactor.redact("qzx") == "qzx"
    assert len(caplog.records) == 1
    assert "qzx" not in caplog.text
