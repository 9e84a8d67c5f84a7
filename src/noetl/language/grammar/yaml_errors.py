"""Explains text that is not YAML: the reader's error goes in, a sentence, a place and advice come out.

No sentence repeats a value, which may be a secret: sentences name punctuation only.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

from ruamel.yaml.error import MarkedYAMLError

TEMPLATE: Final = 'a value with {{ … }} must stand in quotes: "{{ … }}"'
_QUOTE: Final = "put the whole value in quotes"
_INDENT: Final = "give all keys of one mapping the same number of spaces in front"
_KEY_AND_VALUE: Final = re.compile(r"""\s*(?:- +)*(?:[^\s'"#:][^:]*|"[^"]*"|'[^']*'):\s+\S""")
_NO_SPACE: Final = re.compile(r"\s*(?:- +)*[A-Za-z_][\w.-]*:[^\s/:]")
_CONTROL: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufffe\uffff]")


class Told(NamedTuple):
    """What is wrong, where by line and column from 1, and what to do about it."""

    message: str
    line: int = 1
    column: int = 1
    hint: str | None = None


def told(error: Exception, text: str) -> Told:
    """Say what an error of the reader means for whoever wrote the text."""
    if not isinstance(error, MarkedYAMLError):
        return _unmarked(text)
    mark = error.problem_mark or error.context_mark
    if mark is None:
        return _unmarked(text)
    lines = text.split("\n")
    line = lines[mark.line] if mark.line < len(lines) else ""
    said = str(error.problem or error.context)
    found = _character(said, mark) or _quoted(said, error, line) or _bracket(said, error, lines)
    found = found or _colon(said, error, lines) or _structure(said, mark, line)
    return found or Told(
        "something here has a meaning in YAML that does not fit", mark.line + 1, mark.column + 1,
        "a value that holds : # { } [ ] , & * ? | > % @ or ` is safe in quotes",
    )  # fmt: skip


def _unmarked(text: str) -> Told:
    found = _CONTROL.search(text)
    if found is None:
        return Told(
            "a character, escape or directive cannot be read", hint="put values with unusual characters in quotes"
        )
    before = text[: found.start()]
    column = found.start() - (before.rfind("\n") + 1) + 1
    name = f"U+{ord(found[0]):04X}"
    return Told(f"a control character ({name}) stands here", before.count("\n") + 1, column, "remove it")


def _character(said: str, mark: Any) -> Told | None:
    """A value that begins with a character that has a meaning of its own."""
    place = (mark.line + 1, mark.column + 1)
    found = re.match(r"found character '(.+)' that cannot start any token", said)
    if found is not None and found[1] == r"\t":
        return Told(
            "a tab stands where only spaces may", *place, "indent with spaces, and put a value with tabs in quotes"
        )
    if found is not None:
        return Told(f"a value cannot begin with {found[1]}", *place, _QUOTE)
    if said.startswith("expected alphabetic or numeric character"):
        return Told("a value cannot begin with & or *, which name anchors", *place, _QUOTE)
    if said.startswith("mapping keys are not allowed"):
        return Told("a value cannot begin with ? and a space", *place, _QUOTE)
    if said.startswith("expected '<document start>'"):
        return Told("a file or a key cannot begin with %", 1, 1, "put it in quotes")
    if said.startswith("found undefined alias"):
        return Told(
            "this alias refers to no anchor before it", *place, "a value that starts with * must stand in quotes"
        )
    return None


def _quoted(said: str, error: MarkedYAMLError, line: str) -> Told | None:
    """A quote that is never closed, closed too early, or has something in it that is no escape."""
    mark, opened = error.problem_mark, error.context_mark
    if opened is not None and "quoted scalar" in str(error.context) and "end of stream" in said:
        hint = "close it where the text ends; a quote within the text is written \\\" in \"…\" and '' in '…'"
        return Told("a quote is opened here and never closed", opened.line + 1, opened.column + 1, hint)
    if said.startswith(("found unknown escape character", "expected escape sequence")):
        hint = "write \\\\ for a backslash, or use single quotes, in which it has no meaning"
        return Told(
            "a backslash within double quotes begins no escape that there is", mark.line + 1, mark.column + 1, hint
        )
    if said.startswith("expected <block end>, but found '<scalar>'"):
        before = line[: mark.column].rstrip()
        if before.endswith("}") and "{{" in before:
            return Told("text goes on after a template", mark.line + 1, mark.column + 1, TEMPLATE)
        if before.endswith(("'", '"')):
            hint = "put all of the value in quotes; a quote within it is written \\\" in \"…\" and '' in '…'"
            return Told("text goes on after the closing quote", mark.line + 1, mark.column + 1, hint)
        return Told("text goes on after the end of the value", mark.line + 1, mark.column + 1, _QUOTE)
    return None


def _bracket(said: str, error: MarkedYAMLError, lines: list[str]) -> Told | None:
    """A list or mapping in brackets that is not closed, or has something else in it."""
    mark, opened = error.problem_mark, error.context_mark
    missing = re.match(r"expected ',' or '([\]}])'", said)
    if missing is not None and opened is not None:
        bracket = "[" if missing[1] == "]" else "{"
        hint = f"close it with {missing[1]}, put a comma between its parts, and put a value with : {{ }} [ ] or , in quotes"
        if "{{" in lines[opened.line]:
            hint = TEMPLATE
        elif "${" in lines[opened.line]:
            hint = "a value with ${NAME} inside braces must stand in quotes"
        return Told(f"{bracket} is opened here and not closed", opened.line + 1, opened.column + 1, hint)
    if said.startswith("expected the node content"):
        if "stream end" in said:
            hint = "close each [ with ] and each { with }, or put a value that holds one in quotes"
            return Told("the text ends before a bracket is closed", mark.line + 1, mark.column + 1, hint)
        return Told(
            "a value is missing here", mark.line + 1, mark.column + 1, "write one; a mark that is text stands in quotes"
        )
    return None


def _colon(said: str, error: MarkedYAMLError, lines: list[str]) -> Told | None:
    """A colon that is missing, or one where none may be: within a value, or after a line that has one or no space after it."""
    mark = error.problem_mark
    if said.startswith("could not find expected ':'") or said == "while scanning a simple key":
        hint = "a key ends with a colon and a space; text over several lines begins with |"
        begun = error.context_mark or mark
        return Told("this line belongs to nothing: it has no key", begun.line + 1, begun.column + 1, hint)
    if not said.startswith("mapping values are not allowed"):
        return None
    line = lines[mark.line] if mark.line < len(lines) else ""
    if _KEY_AND_VALUE.match(line[: mark.column]):
        hint = 'put the whole value in quotes, such as note: "see: this"'
        return Told("a value holds a colon followed by a space", mark.line + 1, mark.column + 1, hint)
    above = next((number for number in range(mark.line - 1, -1, -1) if lines[number].strip()), None)
    if above is not None and _NO_SPACE.match(lines[above]):
        return Told("no space stands after the colon", above + 1, lines[above].index(":") + 1, "write key: value")
    start = len(line) - len(line.lstrip()) + 1
    return Told("this line is indented deeper than it may be, for the line above has a value already", mark.line + 1, start,
                _INDENT)  # fmt: skip


def _structure(said: str, mark: Any, line: str) -> Told | None:
    """Lines that are indented or begun otherwise than those they belong to."""
    place = (mark.line + 1, mark.column + 1)
    if said.startswith("sequence entries are not allowed"):
        hint = "begin the list in the next line, or put a value that begins with - in quotes"
        return Told("a list cannot begin in the line of its key", *place, hint)
    if said.startswith("expected a comment or a line break"):
        hint = "write the text in the lines below, or put a value that begins with | or > in quotes"
        return Told("text stands in the line of | or >", *place, hint)
    if said.startswith("expected <block end>") and line.lstrip().startswith("- "):
        return Told("a list goes on where keys stand", *place, "indent it below its key")
    if said.startswith("expected <block end>"):
        return Told("this line is not indented like those it belongs to", *place, _INDENT)
    return None
