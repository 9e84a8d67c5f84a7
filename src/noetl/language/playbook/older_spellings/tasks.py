"""Old spellings inside tasks and their policies: a task goes in, the same task in today's words comes out."""

from __future__ import annotations

from collections.abc import Callable

from noetl.language.grammar.problems import Problems
from noetl.language.grammar.tree import Node
from noetl.language.playbook.kinds.registry import KINDS
from noetl.language.playbook.model import Place
from noetl.language.playbook.older_spellings.retry import with_retry
from noetl.language.playbook.older_spellings.task_fields import with_fields, with_inline

_OWN_ARGS = frozenset({"container"})
"""Kinds that have a field of their own called `args`."""


class TaskSpellings:
    """Puts tasks into today's words and tells about each old one."""

    def __init__(self, problems: Problems, *, strict: bool) -> None:
        self.problems = problems
        self._tell = problems.error if strict else problems.warning

    def say(self, old: str, instead: str, place: Place) -> None:
        """Tell about one old spelling."""
        self._tell("legacy_spelling", f"this is an old spelling: {old}", place, instead)

    def each(self, node: Node, key: str, change: Callable[[Node], Node]) -> Node:
        """Change every item of the list under a key."""
        items = node.get(key)
        if items is None or not isinstance(items.value, list):
            return node
        return node.with_entry(key, Node([change(item) for item in items.items], items.place), node.key_place(key))

    def each_under(self, node: Node, path: tuple[str, ...], key: str, change: Callable[[Node], Node]) -> Node:
        """Change every item of the list under a path, if there is one."""
        return node if node.get(*path) is None else inside(node, path, lambda inner: self.each(inner, key, change))

    def tool(self, tool: Node) -> Node:
        """Put what stands under `tool` into today's words."""
        if isinstance(tool.value, list):
            return Node([self.task(self._labelled(task)) for task in tool.items], tool.place)
        return self.task(tool)

    def task(self, task: Node) -> Node:
        """Put one task into today's words."""
        if not isinstance(task.value, dict):
            return task
        kind = task.get("kind")
        word = None if kind is None else kind.text
        if kind is not None and word == "snowflake_transfer":
            self.say("kind snowflake_transfer", "write kind: transfer", kind.place)
            task, word = task.with_entry("kind", Node("transfer", kind.place)), "transfer"
        args = task.get("args")
        # The arguments of a program are a list; those of a task never were.
        is_bindings = args is not None and not isinstance(args.value, list) and word not in _OWN_ARGS
        if is_bindings and "input" not in task.mapping:
            task = self._renamed(task, "args", "input")
        if word == "http" and "endpoint" in task.mapping and "url" not in task.mapping:
            task = self._renamed(task, "endpoint", "url")
        task = self._script(task)
        if word is not None and word in KINDS:  # another kind may have fields of its own by these names
            task = with_fields(task, word, self.say, self.problems)
            task = with_retry(task, self.say, self.problems)
        chosen = task.get("output_select")
        if chosen is not None and isinstance(chosen.value, dict):
            self._no_selection(task.key_place("output_select"))
            task = task.without("output_select")
        elif chosen is not None:
            self.say(
                "output_select", "write output: {select: [{path: $.name, as: name}]}", task.key_place("output_select")
            )
            task = self.with_output(task.without("output_select"), Node({"select": chosen}, chosen.place))
        elif task.get("output") is not None:
            task = task.with_entry("output", self._output(task.mapping["output"]))
        return self._spec(task)

    def with_output(self, tool: Node, output: Node) -> Node:
        """Give the last task of a tool the output that stood elsewhere; what it has itself comes first."""
        if isinstance(tool.value, list):
            if not tool.items:
                return tool
            return Node([*tool.items[:-1], self.with_output(tool.items[-1], output)], tool.place)
        if not isinstance(tool.value, dict):
            return tool
        own = tool.get("output")
        for key, value in ({} if own is None else own.mapping).items():
            output = output.with_entry(key, value)
        return tool.with_entry("output", self._output(output))

    def condition(self, rule: Node) -> Node:
        """Turn a condition written as true or false into a template."""
        when = rule.get("when")
        if when is None or not isinstance(when.value, bool):
            return rule
        self.say("when as true or false", 'write "{{ true }}", or leave it out', when.place)
        return rule.with_entry("when", Node("{{ true }}" if when.value else "{{ false }}", when.place))

    def _renamed(self, task: Node, old: str, new: str) -> Node:
        self.say(old, f"write {new}", task.key_place(old))
        return task.renamed(old, new)

    def _script(self, task: Node) -> Node:
        task = with_inline(task, self.say)
        address = task.get("script", "source", "endpoint")
        if address is None:
            return task
        self.say("script.source.endpoint", "write the address as script.uri", address.place)
        task = inside(task, ("script", "source"), lambda source: source.without("endpoint", "method", "timeout"))
        return inside(task, ("script",), lambda script: script.with_entry("uri", address))

    def _labelled(self, task: Node) -> Node:
        if len(task.mapping) != 1:
            return task
        ((label, inner),) = task.mapping.items()
        if label == "kind" or not isinstance(inner.value, dict) or "name" in inner.mapping:
            return task
        place = task.key_place(label)
        self.say("a task under its label", f"write - name: {label}", place)
        return Node({"name": Node(label, place), **inner.mapping}, task.place, {"name": place, **inner.keys})

    def _no_selection(self, place: Place) -> None:
        said = "output_select as a mapping has no effect: large results go to the payload store by themselves"
        self.problems.warning("no_effect", said, place, "remove it, or write output: {select: [{path: …, as: …}]}")

    def _output(self, output: Node) -> Node:
        chosen = output.get("output_select")
        if chosen is not None and isinstance(chosen.value, dict):
            self._no_selection(output.key_place("output_select"))
            output = output.without("output_select")
        if "output_select" in output.mapping and "select" not in output.mapping:
            place = output.key_place("output_select")
            self.say("output_select", "write select: [{path: $.name, as: name}]", place)
            output = output.renamed("output_select", "select")
        kind = output.get("store", "kind")
        if kind is not None and kind.text == "object":
            self.say("store kind object", "write auto", kind.place)
            output = inside(output, ("store",), lambda store: store.with_entry("kind", Node("auto", kind.place)))
        return self.each(output, "select", self._selected)

    def _selected(self, item: Node) -> Node:
        if item.text is None:
            return item
        self.say("a selected field by its name", f"write {{path: $.{item.text}, as: {item.text}}}", item.place)
        path = Node(f"$.{item.text}", item.place)
        return Node({"path": path, "as": Node(item.text.rpartition(".")[2], item.place)}, item.place)

    def _spec(self, task: Node) -> Node:
        timeout = task.get("spec", "timeout")
        if timeout is not None and isinstance(timeout.value, dict):
            parts = [part.value for part in timeout.mapping.values()]
            if parts and all(isinstance(part, int | float) and not isinstance(part, bool) for part in parts):
                self.say("timeout with parts", "write the seconds of the whole try", timeout.place)
                total = sum(part for part in parts if isinstance(part, int | float))
                task = inside(task, ("spec",), lambda spec: spec.with_entry("timeout", Node(total, timeout.place)))
        return self.each_under(task, ("spec", "policy"), "rules", self._rule)

    def _rule(self, rule: Node) -> Node:
        rule = self.condition(rule)
        other = rule.get("else")
        if other is not None and other.value is None and "then" in rule.mapping and "when" not in rule.mapping:
            self.say("else beside then", "write else: {then: {do: …}}", rule.key_place("else"))
            other = Node({"then": rule.mapping["then"]}, other.place)
            rule = rule.without("then").with_entry("else", other, rule.key_place("else"))
        if (
            other is not None
            and isinstance(other.value, dict)
            and "do" in other.mapping
            and "then" not in other.mapping
        ):
            self.say("else without then", "write else: {then: {do: …}}", other.place)
            rule = rule.with_entry("else", Node({"then": other}, other.place))
        for path in (("then",), ("else", "then")):
            if rule.get(*path) is not None:
                rule = inside(rule, path, self._then)
        return rule

    def _then(self, then: Node) -> Node:
        for old, scope in (("set_ctx", "ctx"), ("set_iter", "iter")):
            values = then.get(old)
            if values is None or not isinstance(values.value, dict):
                continue
            self.say(old, f"write set: {{{scope}.name: …}}", then.key_place(old))
            given = then.get("set") or Node({}, values.place)
            for key, value in values.mapping.items():
                given = given.with_entry(f"{scope}.{key}", value, values.key_place(key))
            then = then.without(old).with_entry("set", given)
        return then


def inside(node: Node, path: tuple[str, ...], change: Callable[[Node], Node]) -> Node:
    """Change the mapping under a path, making the mappings on the way if they are not there."""
    if not path:
        return change(node)
    inner = node.mapping.get(path[0], Node({}, node.place))
    if not isinstance(inner.value, dict):
        return node
    return node.with_entry(path[0], inside(inner, path[1:], change), node.key_place(path[0]))
