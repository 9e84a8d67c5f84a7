"""Reads Python without running it: which files of the DAG's directory a module needs, and what functions it has.

Imports of anything that does not lie in the directory are left alone; so are imports whose name is made at run time.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

Files = Callable[[str], bytes | None]
"""Returns the content of a file beside the DAG by its relative path, None if there is none."""

MAX_BYTES: Final = 1_000_000
"""Of one file of code: to read it takes some ten times as much memory, and seconds."""
_GIVEN: Final = ("spark", "context", "state")
"""What a function may take besides its inputs."""


@dataclass(frozen=True, slots=True)
class Broken:
    """A Python file that cannot be read, and where."""

    file: str
    line: int
    column: int
    reason: str


@dataclass(frozen=True, slots=True)
class Function:
    """The names a function takes; None if that cannot be told from the source."""

    needed: frozenset[str] | None
    """Those without a default, apart from what every function may take."""
    taken: frozenset[str] | None


class PythonFiles:
    """The Python files of one directory, each read once."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._trees: dict[str, ast.Module | None] = {}
        self.broken: dict[str, Broken] = {}

    def module_file(self, module: str) -> str | None:
        """Return the file of a module, or of a package, that lies in the directory."""
        path = module.replace(".", "/")
        return next((name for name in (f"{path}/__init__.py", f"{path}.py") if self._files(name) is not None), None)

    def closure(self, starts: Iterable[str]) -> tuple[str, ...]:
        """Return the files that importing these would read, themselves among them, sorted."""
        found: set[str] = set()
        waiting = [name for name in starts if self._files(name) is not None]
        while waiting:
            name = waiting.pop()
            if name in found:
                continue
            found.add(name)
            waiting += self._packages(_module_of(name))
            tree = self.tree(name)
            for module in () if tree is None else filter(_is_module, set(_imported(tree, name))):
                file = self.module_file(module)
                waiting += self._packages(module) if file is None else [file, *self._packages(module)]
        return tuple(sorted(found))

    def function(self, file: str, name: str) -> Function | None:
        """Return what is known of a module's function; None if the module has nothing of that name."""
        tree = self.tree(file)
        if tree is None:
            return Function(None, None)
        named = [node for node in _top_level(tree.body) if name in _bound(node)]
        if not named:
            starred = any(isinstance(node, ast.ImportFrom) and node.names[0].name == "*" for node in tree.body)
            return Function(None, None) if starred else None
        last = named[-1]
        if not isinstance(last, ast.FunctionDef) or last.decorator_list:
            return Function(None, None)
        return _signature(last.args)

    def tree(self, file: str) -> ast.Module | None:
        """Return the syntax tree of a file; None if it has none, which `broken` then tells of."""
        if file not in self._trees:
            self._trees[file] = self._parsed(file)
        return self._trees[file]

    def _parsed(self, file: str) -> ast.Module | None:
        source = self._files(file) or b""
        if len(source) > MAX_BYTES:
            self.broken[file] = Broken(file, 1, 1, f"it has more than {MAX_BYTES:,} bytes")
            return None
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return ast.parse(source, file)
        except SyntaxError as error:
            self.broken[file] = Broken(file, error.lineno or 1, error.offset or 1, error.msg)
        except (ValueError, RecursionError, MemoryError):
            self.broken[file] = Broken(file, 1, 1, "it is no text that Python can read")
        return None

    def _packages(self, module: str) -> list[str]:
        parts = module.split(".")
        names = ("/".join([*parts[:end], "__init__.py"]) for end in range(1, len(parts)))
        return [name for name in names if self._files(name) is not None]


def _is_module(name: str) -> bool:
    return all(part.isidentifier() for part in name.split("."))


def _module_of(file: str) -> str:
    path = PurePosixPath(file)
    return ".".join(path.parent.parts if path.name == "__init__.py" else (*path.parent.parts, path.stem))


def _imported(tree: ast.Module, file: str) -> Iterator[str]:
    package = list(PurePosixPath(file).parent.parts)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom):
            up = node.level - 1
            if up > len(package):
                continue
            before = package[: len(package) - up] if node.level else []
            module = [*before, *(node.module.split(".") if node.module else [])]
            if module:
                yield ".".join(module)
            yield from (".".join([*module, one.name]) for one in node.names if one.name != "*")
        elif isinstance(node, ast.Call) and node.args:
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", None)
            first = node.args[0]
            named = isinstance(first, ast.Constant) and isinstance(first.value, str)
            if called in ("import_module", "__import__") and named:
                yield str(first.value).lstrip(".")  # type: ignore[attr-defined]


def _top_level(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    for node in body:
        yield node
        if isinstance(node, ast.If | ast.Try | ast.With):
            for part in ("body", "orelse", "finalbody"):
                yield from _top_level(getattr(node, part, []))
            for handler in getattr(node, "handlers", []):
                yield from _top_level(handler.body)


def _bound(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {(one.asname or one.name).split(".")[0] for one in node.names}
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return {inner.id for target in targets for inner in ast.walk(target) if isinstance(inner, ast.Name)}


def _signature(arguments: ast.arguments) -> Function:
    positional = [one.arg for one in (*arguments.posonlyargs, *arguments.args)]
    keyword = [one.arg for one in arguments.kwonlyargs]
    needed = set(positional[: len(positional) - len(arguments.defaults)])
    needed |= {name for name, default in zip(keyword, arguments.kw_defaults, strict=True) if default is None}
    taken = None if arguments.kwarg is not None else frozenset({*positional, *keyword})
    return Function(frozenset(needed - set(_GIVEN)), taken)
