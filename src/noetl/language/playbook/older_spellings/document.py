"""Older spellings of a whole playbook and its steps: a tree goes in, the same playbook in today's language comes out.

Each spelling is reported with what to write instead: a warning, or an error in strict mode. What is not listed stays,
for the grammar to refuse. Each `frame_policy` becomes `loop.spec`; its `parallelism` counts frames in flight, so it
becomes `max_in_flight`.
"""

from __future__ import annotations

from collections.abc import Callable

from noetl.language.grammar.problems import Problems, Say, nearest
from noetl.language.grammar.tree import Node
from noetl.language.playbook.model import Place
from noetl.language.playbook.older_spellings.keychain import with_entry, with_tokens
from noetl.language.playbook.older_spellings.task_fields import without_assert
from noetl.language.playbook.older_spellings.tasks import TaskSpellings, inside
from noetl.language.playbook.older_spellings.template_names import OLD as OLD_INDEX
from noetl.language.playbook.older_spellings.template_names import gives, with_index, with_output


def modernised(root: Node, problems: Problems, *, strict: bool) -> Node:
    """Return a document with every old spelling put into today's."""
    return _DocumentSpellings(problems, strict=strict).playbook(root)


class _DocumentSpellings(TaskSpellings):
    def playbook(self, root: Node) -> Node:
        if "tracing" in root.mapping:
            self.say("tracing at the root has no effect", "remove it", root.key_place("tracing"))
            root = root.without("tracing")
        root = self._root_spec(root)
        tags = root.get("metadata", "tags")
        if tags is not None and tags.text is not None:
            self.say("metadata.tags is text", "write a list: [one, two]", tags.place)
            words = [Node(word.strip(), tags.place) for word in tags.text.split(",") if word.strip()]
            root = inside(
                root, ("metadata",), lambda metadata: metadata.with_entry("tags", Node(list(words), tags.place))
            )
        mode = root.get("executor", "spec", "loop_mode")
        if mode is not None:
            self.say("executor.spec.loop_mode", "write mode: fanout in each loop.spec", mode.place)
            root = inside(root, ("executor", "spec"), lambda spec: spec.without("loop_mode"))
        root = self.each(root, "keychain", lambda entry: with_entry(entry, self.say, self.problems))
        root = self.each(root, "workbook", self._entry)
        root = self.each(root, "workflow", lambda step: self._step(step, mode))
        if not gives(root, OLD_INDEX):
            root = self.each(root, "workflow", lambda step: with_index(step, self.say))
        return with_tokens(with_output(root, self.say), self.say)

    def _root_spec(self, root: Node) -> Node:
        """Make the root's `spec` a value of the workload: it was a name of the same kind."""
        spec, workload = root.get("spec"), root.get("workload")
        if spec is None:
            return root
        self.say("spec at the root", "write it as workload: {spec: …}", root.key_place("spec"))
        root = root.without("spec")
        if not isinstance(spec.value, dict) or (workload is not None and not isinstance(workload.value, dict)):
            return root
        if workload is not None and "spec" in workload.mapping:
            return root
        return inside(root, ("workload",), lambda values: values.with_entry("spec", spec))

    def _entry(self, entry: Node) -> Node:
        entry = without_assert(entry, self.say)
        tool = entry.get("tool")
        return entry if tool is None else entry.with_entry("tool", self.task(tool))

    def _step(self, step: Node, mode: Node | None) -> Node:
        if not isinstance(step.value, dict) or "step" not in step.mapping:
            return step
        step = self._tool(self._retry(without_assert(step, self.say)))
        step = self._routes(step)
        step = self._loop_mode(with_frame(step, self.say, self.problems), mode)
        return self.each_under(step, ("spec", "policy", "admit"), "rules", self.condition)

    def _tool(self, step: Node) -> Node:
        tool = step.get("tool")
        if "tool" not in step.mapping:
            if nearest("tool", step.mapping) is None:  # a misspelt one the grammar tells about
                self.say("a step without tool", "write tool: {kind: noop}", step.key_place("step"))
            return step.with_entry("tool", Node({"kind": Node("noop", step.place)}, step.place))
        if tool is None:
            return step
        if tool.get("kind") is not None and tool.mapping["kind"].text == "iterator" and "loop" not in step.mapping:
            step = self._iterator(step, tool)
            tool = step.mapping["tool"]
        tool = self.tool(tool)
        for word in ("output", "result"):
            output = step.get(word)
            if output is None or not isinstance(output.value, dict):
                continue
            if word == "result" and not output.mapping.keys() & {"output_select", "store"}:
                continue  # said of something else, which the grammar refuses
            self.say(f"{word} on a step", "write output inside the tool", step.key_place(word))
            step, tool = step.without(word), self.with_output(tool, output)
        return step.with_entry("tool", tool, step.key_place("tool"))

    def _retry(self, step: Node) -> Node:
        """Move a step's `retry` to its task; for several tasks nobody can say which of them was meant."""
        retry, tool, at = step.get("retry"), step.get("tool"), step.key_place("retry")
        if retry is None:
            return step
        if tool is None or not isinstance(tool.value, dict) or "retry" in tool.mapping:
            said = "retry of a step that is not one task"
            hint = "give each task that may be tried again a rule of its own: spec: {policy: {rules: […]}}"
            self.problems.error("misplaced_field", said, at, hint)
            return step.without("retry")
        return step.without("retry").with_entry("tool", tool.with_entry("retry", retry, at), step.key_place("tool"))

    def _iterator(self, step: Node, tool: Node) -> Node:
        rows, name, inner = tool.get("collection"), tool.get("element") or tool.get("iterator"), tool.get("task")
        if rows is None or name is None or inner is None:
            return step
        self.say("a tool of kind iterator", "write loop: {in: …, iterator: …} beside the tool", tool.place)
        loop = Node({"in": rows, "iterator": name}, tool.place)
        mode = tool.get("mode")
        if mode is not None:
            word = "sequential" if mode.text == "sequential" else "parallel"
            spec = {"mode": Node(word, mode.place)}
            if tool.get("concurrency") is not None:
                spec["max_in_flight"] = tool.mapping["concurrency"]
            loop = loop.with_entry("spec", Node(dict(spec), mode.place))
        if inner.get("tool") is not None:
            inner = inner.mapping["tool"]
        return step.with_entry("loop", loop).with_entry("tool", inner, step.key_place("tool"))

    def _routes(self, step: Node) -> Node:
        following = step.get("next")
        if following is None:
            return step
        if following.text is not None:
            self.say("next as text", "write next: {arcs: [{step: …}]}", following.place)
            following = _router([_arc(following)], following.place)
        elif isinstance(following.value, list):
            self.say("next as a list", "write next: {arcs: [{step: …}]}", following.place)
            following = _router([_arc(item) for item in following.items], following.place)
        following = self.each(following, "arcs", self.condition)
        return step.with_entry("next", following, step.key_place("next"))

    def _loop_mode(self, step: Node, everywhere: Node | None) -> Node:
        own = step.get("spec", "loop_mode")
        if own is not None:
            self.say("spec.loop_mode", "write mode: fanout in loop.spec", own.place)
            step = inside(step, ("spec",), lambda spec: spec.without("loop_mode"))
        mode = own or everywhere
        loop = step.get("loop")
        if mode is None or loop is None or "cursor" in loop.mapping or loop.get("spec", "mode") is not None:
            return step
        return inside(step, ("loop", "spec"), lambda spec: spec.with_entry("mode", mode))


def _router(arcs: list[Node], place: Place) -> Node:
    return Node({"arcs": Node(list(arcs), place)}, place)


def _arc(node: Node) -> Node:
    return node if node.text is None else Node({"step": node}, node.place, {"step": node.place})


_POLICY_PLACES = ((), ("loop",), ("loop", "spec"))
_SPEC = ("loop", "spec")
_FRAME = ("loop", "spec", "frame")
_POLICY_WORDS = {
    "size": (_FRAME, "max_rows"),
    "duration_ms": (_FRAME, "max_seconds"),
    "memory_bytes": (_FRAME, "max_bytes"),
    "parallelism": (_SPEC, "max_in_flight"),
}


def with_frame(step: Node, say: Say, problems: Problems) -> Node:
    """Return a step whose frame policies stand in its loop, telling of each, and of what is said twice and differs."""
    for path in _POLICY_PLACES if "loop" in step.mapping else ():
        holder = step.get(*path)
        policy = None if holder is None else holder.get("frame_policy")
        if holder is None or policy is None:
            continue
        where = ".".join((*path, "frame_policy"))
        hint = "write loop.spec.frame with max_rows, max_seconds, max_bytes, and loop.spec.max_in_flight"
        say(where, hint, holder.key_place("frame_policy"))
        step = inside(step, path, lambda one: one.without("frame_policy"))
        step = _with_policy(step, policy, where, problems)
    return step


def _with_policy(step: Node, policy: Node, where: str, problems: Problems) -> Node:
    if not isinstance(policy.value, dict):
        return step if step.get(*_FRAME) else inside(step, _SPEC, _putting("frame", policy, policy.place))
    for old, value in policy.mapping.items():
        holder, new = _POLICY_WORDS.get(old, (_FRAME, old))
        value, at = _seconds(value) if old == "duration_ms" else value, policy.key_place(old)
        given = step.get(*holder, new)
        if given is None:
            step = inside(step, holder, _putting(new, value, at))
        elif given.plain() != value.plain():
            there = f"{'.'.join((*holder, new))} in line {given.place.line}"
            said = f"{where}.{old} and {there} stand for one thing and differ"
            problems.error("given_twice", said, at, "leave one of them out")
    return step


def _putting(key: str, value: Node, at: Place) -> Callable[[Node], Node]:
    return lambda node: node.with_entry(key, value, at)


def _seconds(node: Node) -> Node:
    if isinstance(node.value, int | float) and not isinstance(node.value, bool):
        return Node(node.value / 1000, node.place)
    text = (node.text or "").strip()
    if text.startswith("{{") and text.endswith("}}") and text.count("{{") == 1:
        return Node(f"{{{{ ({text[2:-2].strip()}) / 1000 }}}}", node.place)
    return node
