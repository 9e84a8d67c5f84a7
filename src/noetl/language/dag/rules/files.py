"""What must hold of the files a job names and of its SQL: they exist, they can be read, and they fit its inputs.

Problems inside another file are told under that file's name. Without a way to files only what stands inline is read.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable
from pathlib import PurePosixPath
from typing import Final

from noetl.language.dag.operators import OPERATORS
from noetl.language.dag.python_files import Files, PythonFiles
from noetl.language.dag.sql import Select, SqlUnreadable, read_select
from noetl.language.dag.written_job import WrittenJob
from noetl.language.grammar.problems import Problem, Problems, suggest
from noetl.language.grammar.tree import Node
from noetl.language.playbook.checks.all_checks import problems_of
from noetl.language.playbook.model import Place

_NAMED: Final = (("config", "file"), ("config", "script"), ("config", "playbook"), ("config", "requirements"))
_LATER: Final = frozenset({"unknown_kind", "kind_not_supported"})
"""What only the installation that runs a playbook can tell."""


class FileRules:
    """Holds all jobs of a DAG to the rules of files, and gathers which files each of them needs."""

    def __init__(self, problems: Problems, file: str | None, files: Files | None) -> None:
        self._problems = problems
        self._file = file
        self._files = files
        self._python = PythonFiles(files or (lambda _: None))
        self._elsewhere: dict[str, Problems] = {}
        self._read: dict[str, list[Problem]] = {}
        self.named: dict[str, tuple[str, ...]] = {}
        """The files each job names."""
        self.needed: dict[str, tuple[str, ...]] = {}
        """The files each job needs: those it names, and what its Python imports."""

    def hold(self, job: WrittenJob) -> Collection[str] | None:
        """Note what breaks a rule; return the columns of the job's SELECT, where they can be told."""
        named = self._named_files(job)
        python = [name for name in named if name.endswith(".py")]
        closure = self._python.closure(python)
        self.named[job.name] = tuple(dict.fromkeys(named))
        self.needed[job.name] = tuple(sorted({*named, *closure}))
        self._function(job)
        self._hidden(job, python)
        self._playbook(job)
        for check in (*job.items("checks"), *job.items("config", "checks")):
            self._query(job, check.get("sql"), {"output"})
        if job.operator == "spark_sql":
            return self._sql(job)
        return None if job.known is None else job.known.columns

    def elsewhere(self) -> list[Problem]:
        """Return the problems inside other files, file by file."""
        for broken in self._python.broken.values():
            place = Place(broken.line, max(broken.column, 1))
            self._beside(broken.file).error("python_invalid", f"this is not valid Python: {broken.reason}", place)
        found = [problem for name in sorted(self._elsewhere) for problem in self._elsewhere[name].in_order()]
        return [*found, *(problem for name in sorted(self._read) for problem in self._read[name])]

    def _named_files(self, job: WrittenJob) -> list[str]:
        nodes = [node for path in _NAMED if (node := job.node.get(*path)) is not None and node.text is not None]
        entrypoint = job.node.get("udf", "entrypoint")
        if entrypoint is not None and entrypoint.text and job.node.get("udf", "bundle_id") is None:
            nodes.append(entrypoint)
        if self._files is None:
            return [str(node.text) for node in nodes]
        found = []
        for node in nodes:
            if self._files(str(node.text)) is not None:
                found.append(str(node.text))
            elif job.operator in OPERATORS:
                hint = "files are looked for from the directory of the DAG"
                self._problems.error("unknown_file", f"there is no file {node.text}", node.place, hint)
        told = job.text("config", "function") if job.operator == "pyspark" else None
        module = (told or "").partition(":")[0]
        file = self._python.module_file(module) if module else None
        return [*found, *([] if file is None else [file])]

    def _function(self, job: WrittenJob) -> None:
        if self._files is None or job.operator != "pyspark":
            return
        function, script = job.node.get("config", "function"), job.node.get("config", "script")
        if function is not None and function.text is not None and ":" in function.text:
            module, _, name = function.text.partition(":")
            file = self._python.module_file(module)
            if file is not None:
                self._takes(job, file, name, function)
            elif job.node.get("config", "requirements") is None:
                hint = f"write {module.replace('.', '/')}.py beside the DAG, or name its package in config.requirements"
                self._problems.error(
                    "unknown_file", f"there is no module {module} beside the DAG", function.place, hint
                )
        elif script is not None and script.text is not None and self._files(script.text) is not None:
            self._takes(job, script.text, "run", script)

    def _hidden(self, job: WrittenJob, python: Iterable[str]) -> None:
        """Refuse modules that Python's own of the same name would hide, or that would hide those from Spark."""
        if job.operator != "pyspark":
            return
        node = job.node.get("config", "function") or job.node.get("config", "script") or job.node
        for name in self._python.closure(python):
            module = name.partition("/")[0].removesuffix(".py")
            if module in sys.stdlib_module_names:
                said = f"{name} has the name of a module of Python itself, {module}"
                self._problems.error("module_hidden", said, node.place, "give the file another name")

    def _takes(self, job: WrittenJob, file: str, name: str, node: Node) -> None:
        function = self._python.function(file, name)
        if function is None:
            hint = f"write def {name}(…) in it"
            self._problems.error("unknown_function", f"{file} has no function {name}", node.place, hint)
            return
        aliases = {alias.text: alias for one in job.inputs if (alias := one.get("alias")) is not None and alias.text}
        for missing in sorted((function.needed or frozenset()) - aliases.keys()):
            said = f"{name} takes {missing}, which is no input of {job.name}"
            self._problems.error("unknown_input", said, node.place, suggest(missing, map(str, aliases)))
        for taken, at in aliases.items() if function.taken is not None else ():
            if taken not in (function.taken or ()):
                said = f"{name} does not take {taken}, which is an input of {job.name}"
                self._problems.error("unread_input", said, at.place, "add it to the function, or **inputs")

    def _playbook(self, job: WrittenJob) -> None:
        node = job.node.get("config", "playbook")
        if self._files is None or node is None or node.text is None or job.operator != "playbook":
            return
        text = self._text(node.text)
        if text is not None:
            found = problems_of(text, file=self._sibling(node.text))
            self._read[node.text] = [one for one in found if one.code not in _LATER]

    def _sql(self, job: WrittenJob) -> Collection[str] | None:
        aliases = {alias.text for one in job.inputs if (alias := one.get("alias")) is not None and alias.text}
        found = self._query(job, job.node.get("config", "sql"), aliases)
        file = job.text("config", "file")
        if found is None and file is not None:
            text = self._text(file)
            found = None if text is None else self._select(job, text, aliases, file, None)
        if found is None:
            return None
        self._unread(job, {table.name for table in found.tables})
        return found.columns

    def _query(self, job: WrittenJob, node: Node | None, tables: Collection[str]) -> Select | None:
        if node is None or node.text is None or not node.text.strip():
            return None
        return self._select(job, node.text, tables, None, node)

    def _select(
        self, job: WrittenJob, text: str, known: Collection[str], file: str | None, node: Node | None
    ) -> Select | None:
        problems = self._problems if file is None else self._beside(file)
        try:
            found = read_select(text)
        except SqlUnreadable as error:
            said = f"the SQL of {job.name} cannot be taken: {error}"
            problems.error("sql_invalid", said, _at(node, error.line, error.column), "write one SELECT")
            return None
        lower = {name.lower() for name in known}
        for table in found.tables:
            if table.name.lower() not in lower:
                hint = suggest(table.name, known) or "name it under inputs"
                said = f"the SQL of {job.name} reads {table.name}, which is no input"
                problems.error("unknown_table", said, _at(node, table.line, table.column), hint)
        return found

    def _unread(self, job: WrittenJob, names: Iterable[str]) -> None:
        lower = {name.lower() for name in names}
        for one in job.inputs:
            alias = one.get("alias")
            if alias is not None and alias.text is not None and alias.text.lower() not in lower:
                said = f"the input {alias.text} of {job.name} is never read"
                self._problems.warning("unread_input", said, alias.place, "the SELECT does not name it")

    def _text(self, name: str) -> str | None:
        content = None if self._files is None else self._files(name)
        if content is None:
            return None
        try:
            return content.decode()
        except UnicodeDecodeError as error:
            said = f"this is not UTF-8 text: byte {error.start} cannot be decoded"
            self._beside(name).error("not_text", said, Place(1, 1), "save it as UTF-8")
            return None

    def _beside(self, name: str) -> Problems:
        return self._elsewhere.setdefault(name, Problems(self._sibling(name)))

    def _sibling(self, name: str) -> str:
        return name if self._file is None else str(PurePosixPath(self._file).parent / name)


def _at(node: Node | None, line: int, column: int) -> Place:
    if node is None:
        return Place(line, column)
    return Place(node.place.line + line, 1) if node.is_literal else node.place
