"""Fields of older tasks with another name or no meaning, and inline scripts: a task goes in, today's task comes out."""

from __future__ import annotations

import re
from typing import Final

from noetl.language.grammar.problems import Problems, Say
from noetl.language.grammar.tree import Node
from noetl.language.playbook.older_spellings.template_names import asks
from noetl.language.templates.template import is_template

_NO_EFFECT: Final = {
    ("python", "iterator"): "write loop: {in: …, iterator: …} on the step, to run it once per row",
    ("noop", "result"): "write set, or kind: python with code: result = …",
}
"""Fields of a kind that never did anything, with what to write for what they look like."""

_WITH_CREDENTIAL: Final = frozenset({"postgres", "duckdb", "snowflake", "gcs"})
"""Kinds whose `auth` was called `credential`."""
_MODULE: Final = re.compile(r"(?P<module>[A-Za-z_]\w*(\.[A-Za-z_]\w*)*)(\s+as\s+(?P<name>[A-Za-z_]\w*))?")


def without_assert(node: Node, say: Say) -> Node:
    """Return a task, a step or an entry of the workbook without what it once expected and returned."""
    if "assert" not in node.mapping:
        return node
    say("assert, which is not looked at", "remove it, and check in the code or by a rule", node.key_place("assert"))
    return node.without("assert")


def with_fields(task: Node, kind: str, say: Say, problems: Problems) -> Node:
    """Return a task with its fields under today's names."""
    task = without_assert(task, say)
    if kind == "playbook" and "task" in task.mapping:
        say("task on a task of kind playbook, which is not looked at", "remove it", task.key_place("task"))
        task = task.without("task")
    for (of, field), instead in _NO_EFFECT.items():
        if kind == of and field in task.mapping:
            problems.warning("no_effect", f"{field} of a {kind} task has no effect", task.key_place(field), instead)
            task = _without_rows(task, problems) if field == "iterator" else task.without(field)
    if kind in _WITH_CREDENTIAL and "credential" in task.mapping and "auth" not in task.mapping:
        say("credential", "write auth", task.key_place("credential"))
        task = task.renamed("credential", "auth")
    for end in ("source", "target") if kind == "transfer" else ():
        inner = task.get(end)
        if inner is not None and "tool" in inner.mapping and "type" not in inner.mapping:
            say(f"tool of a transfer's {end}", "write type", inner.key_place("tool"))
            task = task.with_entry(end, inner.renamed("tool", "type"), task.key_place(end))
    return _with_imports(task, say, problems) if kind == "python" else task


def _without_rows(task: Node, problems: Problems) -> Node:
    """Take the iterator out, and what would have been its row's: nothing."""
    iterator, given = task.mapping["iterator"], task.get("input")
    words = {"item", *(word.text for key in ("item", "element", "name") if (word := iterator.get(key)) and word.text)}
    for key, value in {} if given is None else dict(given.mapping).items():
        if given is not None and is_template(value.value) and any(asks(str(value.value), word) for word in words):
            said = f"input.{key} reads a row that is never there, and is null"
            problems.warning("no_effect", said, value.place, "write loop: {in: …, iterator: …} on the step")
            given = given.with_entry(key, Node(None, value.place))
    task = task.without("iterator")
    return task if given is None else task.with_entry("input", given, task.key_place("input"))


def _with_imports(task: Node, say: Say, problems: Problems) -> Node:
    libraries, code = task.get("libs"), task.get("code")
    if libraries is None or code is None or code.text is None or not isinstance(libraries.value, dict | list):
        return task
    if isinstance(libraries.value, list):
        lines = [_imported(item) for item in libraries.items]
    else:
        lines = [_import(name, what) for name, what in libraries.mapping.items()]
    at = task.key_place("libs")
    if None in lines:
        hint = "write import statements in the code, and deps: {packages: […]} for what is to be installed"
        problems.warning("no_effect", "libs names something that is no module, which has no effect", at, hint)
    if any(lines):
        say("libs", "write import statements at the top of the code", at)
    source = "".join(f"{line}\n" for line in lines if line) + code.text
    return task.without("libs").with_entry("code", Node(source, code.place))


def _imported(item: Node) -> str | None:
    """Return the statement for an item of a list: a module, or a module under another name."""
    found = _MODULE.fullmatch((item.text or "").strip())
    if found is None:
        return None
    return f"import {found['module']}" + (f" as {found['name']}" if found["name"] else "")


def _import(name: str, what: Node) -> str | None:
    """Return the statement for an entry of a mapping: a name, and the module or what of a module it stands for."""
    module, member = what.text or "", ""
    if isinstance(what.value, dict):
        module, member = (str(node.value) if (node := what.get(key)) else "" for key in ("from", "import"))
        if not member.isidentifier():
            return None
    if not name.isidentifier() or not all(part.isidentifier() for part in module.split(".")):
        return None
    return f"from {module} import {member} as {name}" if member else f"import {module} as {name}"


_TEXTS: Final = ("code", "content", "text", "inline", "body", "script", "command", "value")
"""Where such a script may stand, in `script` or in its `source`."""
_FIELDS: Final = {"python": "code", "postgres": "command", "shell": "cmds"}
"""The field that holds the text of a kind."""
_SHELLS: Final = frozenset({"bash", "sh", "shell"})


def with_inline(task: Node, say: Say) -> Node:
    """Return a task that has the text of its inline script as its own; a `script` task becomes what the text is."""
    script, kind = task.get("script"), task.get("kind")
    found = None if script is None else _text(script)
    if script is None or kind is None or found is None or found.text is None:
        return task
    word = _kind(script, found.text) if kind.text == "script" else kind.text
    field = _FIELDS.get(str(word))
    if field is None or field in task.mapping:
        return task
    shown = field if word == kind.text else f"kind: {word} with {field}"
    say("the script source inline", f"write {shown}", task.key_place("script"))
    return task.without("script", "job").with_entry("kind", Node(word, kind.place)).with_entry(field, found)


def _text(script: Node) -> Node | None:
    source = script.get("source")
    if source is None or "inline" not in (source.text, _word(source, "type")):
        return None
    for holder in (source, script):
        for name in _TEXTS:
            found = holder.get(name)
            if found is not None and found.text is not None:
                return found
    return None


def _kind(script: Node, text: str) -> str:
    """Return what runs a text: what it says it is written in, or python."""
    told = next((word for name in ("language", "interpreter", "runtime") if (word := _word(script, name))), "")
    first = text.split("\n", 1)[0]
    is_shell = told in _SHELLS or (first.startswith("#!") and first.rstrip().endswith(("sh", "bash")))
    return "shell" if is_shell else "python"


def _word(node: Node, key: str) -> str | None:
    found = node.get(key)
    return None if found is None else found.text
