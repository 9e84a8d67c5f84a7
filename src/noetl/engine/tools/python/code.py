"""Users' code and how it is run: it assigns `result`, returns at its top level, or defines `main`, called by parameter name.

Loaded by path in interpreters that may lack NoETL, so it imports the standard library alone, and as little as it can.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # typing itself takes longer to load than all the rest here
if TYPE_CHECKING:
    import ast
    from collections.abc import Callable, Iterable
    from types import CodeType
    from typing import Any

SOURCE = "<code>"
"""The file name of users' code in tracebacks."""

MODULE = "noetl_task"
"""The module users' code runs as. Not `__main__`: a script's `if __name__ == "__main__"` would call `main` once more."""

_BODY = "__noetl_body__"
_MAX_MESSAGE = 2_000
_MAX_TRACE = 20
_missing = object()
_fell_through = object()


class Refused(Exception):
    """The code cannot be run, or its result not passed on: the fields of a problem."""

    def __init__(self, **problem: Any) -> None:
        super().__init__(problem["message"])
        self.problem = problem


def compiled(source: str) -> CodeType:
    """Compile users' code; a `return` at its top level is allowed."""
    try:
        return compile(source, SOURCE, "exec", dont_inherit=True)
    except SyntaxError:
        import ast

        tree = ast.parse(source, SOURCE)  # takes a return anywhere, and raises the same error for everything else
        if not any(isinstance(node, ast.Return) for node in _own_nodes(tree.body)):
            raise
        return compile(_as_function(tree), SOURCE, "exec", dont_inherit=True)


def _own_nodes(body: Iterable[ast.AST]) -> Iterable[ast.AST]:
    """Yield the nodes of the top level: functions, classes and lambdas are yielded, what is inside them is not."""
    import ast

    left = list(body)
    while left:
        node = left.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            left.extend(ast.iter_child_nodes(node))


def _as_function(tree: ast.Module) -> ast.Module:
    """Make the top level the body of a function whose names are all global, so that it means the same as before."""
    import ast

    class Bare(ast.NodeTransformer):
        """Drops annotations of names, which a function does not allow for global ones."""

        def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
            if not isinstance(node.target, ast.Name):
                return node
            if node.value is None:
                return ast.copy_location(ast.Pass(), node)
            return ast.copy_location(ast.Assign(targets=[node.target], value=node.value), node)

        def leave(self, node: ast.AST) -> ast.AST:
            return node

        visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = visit_Lambda = leave  # noqa: N815

    first = next((at for at, node in enumerate(tree.body) if not _is_future_import(node)), len(tree.body))
    body = [Bare().visit(node) for node in tree.body[first:]]
    names = sorted({name for node in _own_nodes(body) for name in _bound(node)})
    end = ast.Return(value=ast.Name(id="__noetl_end__", ctx=ast.Load()))
    declared = [ast.Global(names=names)] if names else []
    function = ast.parse(f"def {_BODY}(): pass").body[0]
    assert isinstance(function, ast.FunctionDef)
    function.body = [*declared, *body, end]
    return ast.fix_missing_locations(ast.Module(body=[*tree.body[:first], function], type_ignores=[]))


def _is_future_import(node: ast.stmt) -> bool:
    return getattr(node, "module", None) == "__future__"


def _bound(node: Any) -> list[str]:
    """Return the names a node of the top level gives a value to."""
    match type(node).__name__:
        case "Name":
            return [] if type(node.ctx).__name__ == "Load" else [node.id]
        case "FunctionDef" | "AsyncFunctionDef" | "ClassDef":
            return [node.name]
        case "Import":
            return [(alias.asname or alias.name).partition(".")[0] for alias in node.names]
        case "ImportFrom":
            return [alias.asname or alias.name for alias in node.names]
        case "ExceptHandler" | "MatchAs" | "MatchStar":
            return [node.name] if node.name else []
        case "MatchMapping":
            return [node.rest] if node.rest else []
    return []


def run(
    code: CodeType, given: dict[str, Any], beside: dict[str, Any], ask: Callable[[list[str]], dict[str, Any]]
) -> Any:
    """Run code in a fresh module and return what it came to.

    `beside` are names it finds besides its input, `ask` gives values of the scope by name.
    """
    module = sys.modules[MODULE] = type(sys)(MODULE)
    names = module.__dict__
    beside = {**beside, "input_data": dict(given)}
    names.update(beside)
    names.update((name, value) for name, value in given.items() if not name.startswith("__"))
    names["__noetl_end__"] = _fell_through
    try:
        exec(code, names)  # noqa: S102 - running users' code is what this process is for
        result = _result(names, given, beside, ask)
        if hasattr(result, "__await__"):
            import asyncio

            return asyncio.run(_awaited(result))
        return result
    finally:
        # Functions and their module point at each other: cleared, large data is given back at once.
        if sys.modules.get(MODULE) is module:
            del sys.modules[MODULE]
        names.clear()


async def _awaited(result: Any) -> Any:
    return await result


def _result(
    names: dict[str, Any],
    given: dict[str, Any],
    beside: dict[str, Any],
    ask: Callable[[list[str]], dict[str, Any]],
) -> Any:
    body = names.pop(_BODY, None)
    if body is not None and (returned := body()) is not _fell_through:
        return returned
    result = names.get("result")
    if "result" in names and result is not given.get("result", _missing):
        return result
    main = names.get("main")
    if callable(main) and main is not given.get("main", _missing):
        positional, keywords = _arguments(main, given, beside, ask)
        return main(*positional, **keywords)
    return result


def _arguments(
    main: Callable[..., Any],
    given: dict[str, Any],
    beside: dict[str, Any],
    ask: Callable[[list[str]], dict[str, Any]],
) -> tuple[list[Any], dict[str, Any]]:
    import inspect

    parameters = [each for each in inspect.signature(main).parameters.values() if each.kind is not each.VAR_POSITIONAL]
    named = [each for each in parameters if each.kind is not each.VAR_KEYWORD]
    wanted = [each.name for each in named if each.name not in given and each.name != "input_data"]
    values = {**beside, **(ask(wanted) if wanted else {}), **given}
    missing = [each.name for each in named if each.name not in values and each.default is each.empty]
    if missing:
        raise Refused(
            kind="schema",
            code="argument_missing",
            message=f"main() needs {', '.join(map(repr, missing))}, which neither the input nor the scope has; "
            "bind it under `input` or give the parameter a default",
            details={"missing": missing},
        )
    positional: list[Any] = []
    keywords: dict[str, Any] = {}
    for each in named:
        if each.name in values:
            if each.kind is each.POSITIONAL_ONLY:
                positional.append(values[each.name])
            else:
                keywords[each.name] = values[each.name]
    if len(named) < len(parameters):
        keywords.update((name, value) for name, value in given.items() if all(name != each.name for each in named))
    return positional, keywords


def explained(problem: BaseException) -> dict[str, Any]:
    """Return the fields of the problem an exception of users' code stands for."""
    if isinstance(problem, Refused):
        return problem.problem
    kind = type(problem).__name__
    details: dict[str, Any] = {}
    if isinstance(problem, SyntaxError) and problem.filename == SOURCE:
        details = {"line": problem.lineno, "column": problem.offset}
        text = problem.msg
    else:
        trace = _trace(problem)
        if trace:
            details = {"line": trace[-1]["line"], "trace": trace[-_MAX_TRACE:]}
        text = _text_of(problem)
    place = f" (line {details['line']})" if details.get("line") else ""
    message = f"{kind}: {text[:_MAX_MESSAGE]}{place}" if text else f"{kind}{place}"
    return {"kind": "unknown", "exception_type": kind, "message": message, "details": details}


def _trace(problem: BaseException) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    step = problem.__traceback__
    while step is not None:
        code = step.tb_frame.f_code
        if code.co_filename == SOURCE:
            found.append({"line": step.tb_lineno, "in": "top level" if code.co_name == _BODY else code.co_name})
        step = step.tb_next
    return found


def _text_of(problem: BaseException) -> str:
    try:
        text = str(problem)
    except Exception:
        return "(its message cannot be shown)"
    return text.encode(errors="backslashreplace").decode()
