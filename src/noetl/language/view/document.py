"""Reads a view: its text goes in, the view with its code comes out, or `ViewInvalid` with every problem at once."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Final

from noetl.errors import InputError
from noetl.language.dag.python_files import Files, PythonFiles
from noetl.language.grammar.matcher import Matcher
from noetl.language.grammar.problems import Problem, Problems
from noetl.language.grammar.tree import Node
from noetl.language.grammar.yaml_reader import read
from noetl.language.playbook.model import Place
from noetl.language.playbook.schema import record_schema
from noetl.language.view.definition import EVENTS, ROWS, Definition, definition_of, digest_of
from noetl.language.view.grammar import VIEW
from noetl.language.view.select import hold_condition, hold_select

MAX_BYTES: Final = 32_768
"""Of a view without its code: it stands in the event that deploys it."""
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)


class ViewInvalid(InputError):
    """The view has problems."""

    code = "view_invalid"


@dataclass(frozen=True, slots=True)
class ViewDocument:
    """A view that was read, with the files of its code."""

    definition: Definition
    files: dict[str, bytes]
    digest: str
    """The version: equal for equal views, whatever their layout."""

    def bundle(self) -> bytes:
        """Return the code as a zip that is the same for the same files; empty where there is none."""
        if not self.files:
            return b""
        target = io.BytesIO()
        with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as archive:
            for name in sorted(self.files):
                archive.writestr(zipfile.ZipInfo(name, _EPOCH), self.files[name])
        return target.getvalue()


def parse_view(text: str, *, file: str | None = None, files: Files | Mapping[str, bytes] | None = None) -> ViewDocument:
    """Read a view; `files` gives what lies beside it."""
    problems = Problems(file)
    root = read(text, problems, "view")
    if root is None:
        raise refusal(problems.in_order())
    beside = _Beside(problems, file, files.get if isinstance(files, Mapping) else files)
    Matcher(problems).match(root, VIEW, "")
    if len(text.encode()) > MAX_BYTES:
        said = f"the view has {len(text.encode())} bytes, and {MAX_BYTES} are allowed"
        problems.error("too_large", said, root.place, "move the SELECT or the code into a file")
    sql = beside.hold(root)
    _hold_time(root, problems)
    found = [*problems.in_order(), *beside.elsewhere()]
    if any(one.severity == "error" for one in found):
        raise refusal(found)
    definition = definition_of(root.plain(), sql)
    code = {name: content for name in beside.code if (content := beside.content(name)) is not None}
    return ViewDocument(definition, code, digest_of(definition, code))


def problems_of(text: str, *, file: str | None = None, files: Files | None = None) -> list[Problem]:
    """Return everything that is to be said about a view's text."""
    try:
        parse_view(text, file=file, files=files)
    except ViewInvalid as error:
        found: list[Problem] = error.details["problems"]  # type: ignore[assignment]
        return found
    return []


def is_view(text: str) -> bool:
    """Tell whether a file is a view, by its kind."""
    root = read(text, Problems())
    if root is None:
        return re.search(r"^kind:\s*View\s*$", text, re.MULTILINE) is not None
    kind = root.get("kind")
    return kind is not None and kind.text == "View"


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a view."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "https://noetl.io/schemas/view.json",
        "title": "NoETL view",
        **record_schema(VIEW),
    }


def refusal(problems: list[Problem]) -> ViewInvalid:
    """Make the error that carries all problems of a view."""
    return ViewInvalid("\n".join(map(str, problems)), problems=problems)


def _hold_time(root: Node, problems: Problems) -> None:
    time = root.get("event_time")
    if time is not None and root.get("source", "dataset") is not None:
        said = "event_time is for views of events; a view of a dataset is computed anew and has no late rows"
        problems.error("misplaced_field", said, root.key_place("event_time"), "leave it out")


class _Beside:
    """The query of a view and the files it stands in."""

    def __init__(self, problems: Problems, file: str | None, files: Files | None) -> None:
        self._problems = problems
        self._file = file
        self._files = files
        self._python = PythonFiles(files or (lambda _: None))
        self._elsewhere: list[Problems] = []
        self.code: tuple[str, ...] = ()

    def content(self, name: str) -> bytes | None:
        """Return a file that lies beside the view."""
        return None if self._files is None else self._files(name)

    def elsewhere(self) -> list[Problem]:
        """Return the problems inside other files."""
        for broken in self._python.broken.values():
            place = Place(broken.line, max(broken.column, 1))
            self._beside(broken.file).error("python_invalid", f"this is not valid Python: {broken.reason}", place)
        return [one for problems in self._elsewhere for one in problems.in_order()]

    def hold(self, root: Node) -> str | None:
        """Hold the view's query to the rules; return its SELECT, if it is one."""
        keys = root.get("keys")
        named = [] if keys is None else [keys] if keys.text is not None else keys.items
        dataset = root.get("source", "dataset")
        relation = EVENTS if dataset is None else dataset.text or EVENTS
        streams = dataset is None
        keep = root.get("keep")
        if keep is not None and keep.text:
            hold_condition(keep, self._problems)
        rollup = root.get("rollup")
        if rollup is not None and rollup.text:
            hold_select(rollup.text, rollup, self._problems, ROWS, named, streams=False)
            named = []
        sql, file, function = root.get("sql"), root.get("file"), root.get("function")
        if function is not None and (file is None or not (file.text or "").endswith(".py")):
            said = "function names something in a .py file, and file is none"
            self._problems.error("misplaced_field", said, root.key_place("function"), "write file: view.py as well")
        if sql is not None and sql.text:
            hold_select(sql.text, sql, self._problems, relation, named, streams=streams)
            return sql.text
        if file is None or file.text is None or self._files is None:
            return None
        content = self._files(file.text)
        if content is None:
            hint = "files are looked for from the directory of the view"
            self._problems.error("unknown_file", f"there is no file {file.text}", file.place, hint)
            return None
        if file.text.endswith(".py"):
            self._hold_function(file, "view" if function is None else str(function.text))
            return None
        return self._hold_file(file.text, content, relation, named, streams=streams)

    def _hold_file(self, name: str, content: bytes, relation: str, keys: list[Node], *, streams: bool) -> str | None:
        problems = self._beside(name)
        try:
            text = content.decode()
        except UnicodeDecodeError as error:
            said = f"this is not UTF-8 text: byte {error.start} cannot be decoded"
            problems.error("not_text", said, Place(1, 1), "save it as UTF-8")
            return None
        hold_select(text, None, problems, relation, keys, streams=streams)
        return text

    def _hold_function(self, file: Node, name: str) -> None:
        self.code = self._python.closure([str(file.text)])
        if self._python.function(str(file.text), name) is None:
            hint = f"write def {name}(events): … in it"
            self._problems.error("unknown_function", f"{file.text} has no function {name}", file.place, hint)

    def _beside(self, name: str) -> Problems:
        where = name if self._file is None else str(PurePosixPath(self._file).parent / name)
        self._elsewhere.append(Problems(where))
        return self._elsewhere[-1]
