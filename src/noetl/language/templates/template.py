"""Templates: source text and names go in, a value comes out, or `TemplateFailed` that says where and what is missing.

A template that is one `{{ expression }}` gives the expression's own value, anything else gives text, and no text is
ever read as a number. Expressions of the everyday kind become plain Python closures; the rest is left to Jinja. Source
text is never given back in place of a value, and values never stand in an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

from jinja2 import TemplateSyntaxError, Undefined, UndefinedError, meta, nodes
from jinja2.exceptions import SecurityError, TemplateError

from noetl.errors import NoetlError, TemplateFailed, TemplateUnbounded
from noetl.language.templates.bounds.cache import KeptByLength
from noetl.language.templates.bounds.meter import METER, BoundExceeded, open_budget, pay_for_reading, spend
from noetl.language.templates.closures import Render
from noetl.language.templates.expressions import FailedAt, Reading, text_of, value_of
from noetl.language.templates.filters import resolved
from noetl.language.templates.origins import Origin, origins_at
from noetl.language.templates.sandbox import SANDBOX, NotRun
from noetl.language.templates.tree_rewrites import with_error_fields

Path = tuple[str | int, ...]

CHARACTERS_MAX: Final = 20_000
"""Characters of the expressions and blocks of one template. Making it takes up to 3 KB for each, and its last part holds
the interpreter for itself; the text between them costs next to nothing."""
TEXT_CHARACTERS_MAX: Final = 500_000
"""Characters of one template, the text between its expressions included."""
_KEPT: Final[KeptByLength[Template]] = KeptByLength(500_000)
_LOOKED_AT = 1_000
_CLOCKS = frozenset({"now", "utcnow", "today", "random", "uuid", "uuid4"})
NO_CLOCK = (
    "templates have no clock and no chance, for a replay must come to the same: take it in a python task, or in SQL"
)
"""What is said of a name that would give another value each time."""
_FALSE = frozenset({"", "false", "0", "no", "none"})
_TRUE = frozenset({"true", "1", "yes"})


def is_template(text: object) -> bool:
    """Tell whether a value is text that has to be rendered."""
    return isinstance(text, str) and ("{{" in text or "{%" in text)


def is_clock(name: str) -> bool:
    """Tell whether a name asks for the time or for chance, which templates do not have."""
    return name in _CLOCKS


def holds(value: Any, place: Literal["arc", "policy", "admit"]) -> bool:
    """Tell whether a condition holds. An arc or admission holds unless it is plainly false, a policy only if plainly true."""
    if isinstance(value, bool):
        return value
    if place == "policy":
        return (
            value.strip().lower() in _TRUE if isinstance(value, str) else isinstance(value, int | float) and value == 1
        )
    return value.strip().lower() not in _FALSE if isinstance(value, str) else bool(value)


class Template:
    """Source text ready to be rendered often."""

    __slots__ = ("_lines", "_render", "is_expression", "names", "paths", "source")

    def __init__(self, source: str, reading: Reading = "value") -> None:
        self.source = source
        tree = SANDBOX.parse(source) if is_template(source) else _as_it_is(source)
        self.names = frozenset(meta.find_undeclared_variables(tree)) - frozenset(SANDBOX.globals)
        """What the template asks for at the top."""
        self._lines = _paths_in(tree, self.names)
        self.paths = frozenset(self._lines)
        """What it asks for in full, such as `("fetch", "rows", 0, "id")`."""
        if "output" in self.names:
            tree = with_error_fields(tree)
        expression = _only_expression(tree)
        self.is_expression = expression is not None
        self._render = text_of(tree) if expression is None else value_of(expression, reading)

    def render(self, names: Mapping[str, Any], where: str = "template", origin: Origin | None = None) -> Any:
        """Return what the template comes to with these names; `where` and its line are said in the error if it cannot."""
        return self.at(where, origin)(names)

    def at(self, where: str, origin: Origin | None = None) -> Render:
        """Return the function that renders the template for one place, which is said in its errors."""
        made_of, meter = self._render, METER

        def render(names: Mapping[str, Any]) -> Any:
            is_outermost = not meter.is_open
            if is_outermost:
                open_budget()
            try:
                return made_of(names)
            except FailedAt as failed:
                failure = self._failure(failed, names, where, origin)
            finally:
                if is_outermost:
                    meter.is_open = False
            raise failure

        return render

    def _failure(self, failed: FailedAt, names: Mapping[str, Any], where: str, origin: Origin | None) -> NoetlError:
        error, line = failed.error, failed.line
        if isinstance(error, NoetlError):
            return error  # a value that is held elsewhere could not be fetched
        if isinstance(error, BoundExceeded):
            place = f"in {self._excerpt('', line)} ({_line(line, origin)})"
            return TemplateUnbounded(f"{where}: {error} {place}", hint=_DO_IT_IN_A_TASK, where=where, line=line)
        if not isinstance(error, UndefinedError):
            said, name, details = _reason(error), "", {}
        else:
            part, whole, line = self._missing(str(error), names, line)
            said = f"{part!r} is undefined" if part else "a name that is only known at run time is undefined"
            if is_clock(part):
                said += f" ({NO_CLOCK})"
            elif part and isinstance(_named(names, part), NotRun):
                said += " (the step has not run)"
            name, details = part.rpartition(".")[2], {"missing": whole}
        place = f"in {self._excerpt(name, line)} ({_line(line, origin)})"
        return TemplateFailed(f"{where}: {said} {place}", hint=None, where=where, line=line, **details)

    def _missing(self, name: str, names: Mapping[str, Any], line: int) -> tuple[str, str, int]:
        """Return what is undefined, the path it is part of, and its line."""
        for path, at in sorted(self._lines.items(), key=lambda found: (found[1] != line, found[1])):
            value: Any = names
            for depth, key in enumerate(path):
                if depth == 0:
                    value = _named(names, str(key))
                else:
                    value = SANDBOX.getattr(value, key) if isinstance(key, str) else SANDBOX.getitem(value, key)
                if isinstance(value, Undefined):
                    if str(key) == name:
                        return _dotted(path[: depth + 1]), _dotted(path), at
                    break
        # A name out of the source may be said; a key that was itself a value may be a secret.
        known = name if re.search(rf"\b{re.escape(name)}\b", self.source) else ""
        return known, known, line

    def _excerpt(self, name: str, line: int) -> str:
        found = []
        for start, part in _expressions(self.source):
            first = self.source.count("\n", 0, start) + 1
            is_there = first <= line <= first + part.count("\n")
            found.append((name not in part, not is_there, part))
        text = min(found, key=lambda one: one[:2])[2] if found else self.source.split("\n")[line - 1].strip()
        return text if len(text) <= 120 else text[:117] + "..."


_DO_IT_IN_A_TASK = "do it in a python task or in SQL, which run on a worker"


def _named(names: Mapping[str, Any], name: str) -> Any:
    try:
        return resolved(names[name])
    except KeyError:
        return SANDBOX.undefined(name=name)


def _line(line: int, origin: Origin | None) -> str:
    return f"line {line} of the template" if origin is None else f"line {origin.of(line)} of the playbook"


def _reason(error: Exception) -> str:
    # The text of other errors may quote a value, and a value may be a secret.
    if isinstance(error, BoundExceeded | TypeError | ZeroDivisionError | OverflowError | SecurityError | TemplateError):
        return str(error)
    return f"{type(error).__name__} while evaluating"


def compiled(source: str, reading: Reading = "value", *, keep: bool = True) -> Template:
    """Return the template of a source text. One that is kept is made once; who asks a single time need not have it kept."""
    key = source, reading
    found = _KEPT.get(key)
    try:
        pay_for_reading(source, is_known=found is not None)
        if found is not None:
            return found
        if len(source) > CHARACTERS_MAX and is_template(source):
            _refuse_long(source)
        made = Template(source, reading)
    except TemplateFailed:
        raise
    except TemplateSyntaxError as error:
        raise TemplateFailed(f"{error.message} (line {error.lineno} of the template)", line=error.lineno) from None
    except BoundExceeded as error:
        raise TemplateUnbounded(f"the template cannot be read: {error}") from None
    except Exception as error:
        raise TemplateFailed(f"the template cannot be read: {_reason(error)}") from None
    return _KEPT.keep(key, made, len(source)) if keep else made


def _refuse_long(source: str) -> None:
    advice = "give long texts as values, or make them in a task"
    if len(source) > TEXT_CHARACTERS_MAX:
        raise TemplateFailed(
            f"it has {len(source)} characters, and a template may have {TEXT_CHARACTERS_MAX}: {advice}", line=1
        )
    length = 0
    # Jinja's own reading says what is text: a brace in a string of an expression ends nothing.
    for line, kind, token in SANDBOX.lexer.tokeniter(source, None):
        length += 0 if kind == "data" else len(token)
        if length > CHARACTERS_MAX:
            said = f"it has more than {CHARACTERS_MAX} characters in expressions and blocks"
            raise TemplateFailed(f"{said}: {advice}", line=line)


def names_in(value: Any, *, keep: bool = True) -> frozenset[str]:
    """Return the names that the templates anywhere in a value ask for."""
    _pay_for_part("template")
    if isinstance(value, str):
        return compiled(value, keep=keep).names if is_template(value) else frozenset()
    if isinstance(value, Mapping):
        return frozenset().union(*(names_in(part, keep=keep) for pair in value.items() for part in pair))
    if isinstance(value, list | tuple):
        return frozenset().union(*(names_in(part, keep=keep) for part in value))
    return frozenset()


def _pay_for_part(where: str) -> None:
    try:
        spend(1)
    except BoundExceeded as error:
        raise TemplateUnbounded(f"{where}: {error}", hint=_DO_IT_IN_A_TASK, where=where) from None


class CompiledValue:
    """A value with templates anywhere in it. Rendered values share their constant parts: they are read, not changed."""

    __slots__ = ("is_constant", "render")

    def __init__(self, render: Render, *, is_constant: bool) -> None:
        self.render = render
        self.is_constant = is_constant


def compile_value(
    value: Any, where: str, origins: Any = None, *, reading: Reading = "value", keep: bool = True
) -> CompiledValue:
    """Return a value ready to be rendered often; `where` is text such as `step fetch, task get, field url`.

    `origins` tell in which lines of the playbook its templates stand. How a value that is one template is taken is said
    by `reading`; what is rendered a single time need not be kept.
    """
    _pay_for_part(where)
    if isinstance(value, str) and is_template(value):
        try:
            template = compiled(value, reading, keep=keep)
        except TemplateFailed as error:
            failure = type(error)(f"{where}: {error.message}", hint=error.hint)
            failure.details = {**error.details, "where": where}
            raise failure from None
        origin = origins if isinstance(origins, Origin) else None
        return CompiledValue(template.at(where, origin), is_constant=False)
    if isinstance(value, Mapping):
        return _compile_mapping(value, where, origins, keep=keep)
    if isinstance(value, list | tuple):
        parts = [
            compile_value(part, f"{where}[{index}]", origins_at(origins, index), keep=keep)
            for index, part in enumerate(value)
        ]
        if not all(part.is_constant for part in parts):
            renders = [part.render for part in parts]
            return CompiledValue(lambda names: [render(names) for render in renders], is_constant=False)
    return CompiledValue(lambda _: value, is_constant=True)


def _compile_mapping(value: Mapping[Any, Any], where: str, origins: Any, *, keep: bool) -> CompiledValue:
    keys = {key: compile_value(key, where, keep=keep) for key in value}
    parts = {
        key: compile_value(part, _inside(where, key), origins_at(origins, key), keep=keep)
        for key, part in value.items()
    }
    if all(part.is_constant for part in (*keys.values(), *parts.values())):
        return CompiledValue(lambda _: value, is_constant=True)
    if all(key.is_constant for key in keys.values()):
        # All keys stand in their order from the start; only what is not constant is put in again.
        frame = dict(value)
        moving = [(key, part.render) for key, part in parts.items() if not part.is_constant]

        def render(names: Mapping[str, Any]) -> dict[Any, Any]:
            made = frame.copy()
            for key, part in moving:
                made[key] = part(names)
            return made

        return CompiledValue(render, is_constant=False)
    pairs = [(keys[key].render, parts[key].render) for key in value]
    return CompiledValue(lambda names: {str(key(names)): part(names) for key, part in pairs}, is_constant=False)


def _inside(where: str, key: object) -> str:
    return f"{where}.{key}" if ", field " in where else f"{where}, field {key}"


def _expressions(source: str) -> Iterator[tuple[int, str]]:
    """Give the first expressions of a template, with where each starts: enough for a message."""
    start = source.find("{{")
    for _ in range(_LOOKED_AT):
        end = source.find("}}", start)
        if start < 0 or end < 0:
            return
        yield start, source[start : end + 2]
        start = source.find("{{", end)


def _as_it_is(text: str) -> nodes.Template:
    # Without a mark nothing is left out, not even what Jinja takes for a comment.
    tree = nodes.Template([nodes.Output([nodes.TemplateData(text)])])
    return tree.set_lineno(1).set_environment(SANDBOX)  # type: ignore[return-value]


def _only_expression(tree: nodes.Template) -> nodes.Expr | None:
    # White space around it does not count: a block of YAML always ends in a line break.
    if len(tree.body) != 1 or not isinstance(tree.body[0], nodes.Output):
        return None
    parts = [
        part for part in tree.body[0].nodes if not (isinstance(part, nodes.TemplateData) and not part.data.strip())
    ]
    return parts[0] if len(parts) == 1 and not isinstance(parts[0], nodes.TemplateData) else None


def _dotted(path: Path) -> str:
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path).lstrip(".")


def _paths_in(tree: nodes.Template, names: frozenset[str]) -> dict[Path, int]:
    found: dict[Path, int] = {}

    def visit(node: nodes.Node) -> None:
        if isinstance(node, nodes.Call) and isinstance(node.node, nodes.Getattr):
            visit(node.node.node)  # a method is no part of what is asked for
            for argument in (*node.args, *node.kwargs):
                visit(argument)
            return
        path = _path(node)
        if path is None:
            for child in node.iter_child_nodes():
                visit(child)
        elif path[0] in names:
            found.setdefault(path, node.lineno)

    visit(tree)
    return found


def _path(node: nodes.Node) -> Path | None:
    if isinstance(node, nodes.Name):
        return (node.name,)
    if isinstance(node, nodes.Getattr):
        start = _path(node.node)
        return None if start is None else (*start, node.attr)
    if isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Const) and isinstance(node.arg.value, str | int):
        start = _path(node.node)
        return None if start is None else (*start, node.arg.value)
    return None
