"""Rewrites a parsed template where Jinja has no other hook: a tree goes in, the same tree with filters comes out.

`hardened` charges for loops, comparisons, slices and the text they produce (`bounds`), and makes Jinja read names as
our closures do: a result alone is its value, and keeps its names before a dot. `with_error_fields` makes
`output.error.kind` null after a success; any other missing name below it stays an error.
"""

from __future__ import annotations

from typing import Any, Final

from jinja2 import nodes
from jinja2.visitor import NodeTransformer

from noetl.language.templates.bounds.meter import TURN
from noetl.language.templates.closures import DEFAULTS, GUARDS, SEARCHES
from noetl.language.templates.sandbox import SANDBOX


def hardened(tree: nodes.Template) -> nodes.Template:
    """Return a template with all checks in it."""
    made: nodes.Template = _Hardened().visit(tree)
    return made


class _Hardened(NodeTransformer):
    def whole(self, node: Any) -> Any:
        """Return what stands before a dot or in a condition: a result keeps its names there."""
        if isinstance(node, nodes.Name):
            return node
        if isinstance(node, nodes.CondExpr):
            return self._condition(node)
        if isinstance(node, nodes.And | nodes.Or):
            return self._operands(node)
        if isinstance(node, nodes.Filter) and node.name in DEFAULTS and node.node is not None:
            node.node = self._guarded(node.node)
            node.args = [self.whole(arg) for arg in node.args]
            return node
        return self.visit(node)

    def _guarded(self, node: Any) -> Any:
        """Return what `default` or `is defined` is asked about: any part of it may be missing."""
        if isinstance(node, nodes.Getattr):
            key: nodes.Expr = nodes.Const(node.attr, lineno=node.lineno)
            return _filtered(self._guarded(node.node), "reached", key)
        if isinstance(node, nodes.Getitem) and not isinstance(node.arg, nodes.Slice):
            return _filtered(self._guarded(node.node), "reached_item", self.visit(node.arg))
        return self.whole(node)

    def visit_Name(self, node: nodes.Name) -> nodes.Node:  # noqa: N802
        return _filtered(node, "alone") if node.ctx == "load" else node

    def visit_Getattr(self, node: nodes.Getattr) -> nodes.Node:  # noqa: N802
        node.node = self.whole(node.node)
        return node

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:  # noqa: N802
        # Jinja takes a slice of what there is without asking the sandbox.
        if isinstance(node.arg, nodes.Slice):
            node.node, node.arg = _filtered(self.visit(node.node), "charged_items"), self.visit(node.arg)
        else:
            node.node, node.arg = self.whole(node.node), self.visit(node.arg)
        return node

    def visit_Call(self, node: nodes.Call) -> nodes.Node:  # noqa: N802
        if not isinstance(node.node, nodes.Name):
            node.node = self.visit(node.node)
        node.args = [self.visit(arg) for arg in node.args]
        node.kwargs = [self.visit(arg) for arg in node.kwargs]
        return node

    def visit_Assign(self, node: nodes.Assign) -> nodes.Node:  # noqa: N802
        node.node = self.whole(node.node)
        return node

    def visit_If(self, node: nodes.If) -> nodes.Node:  # noqa: N802
        test = self.whole(node.test)
        node.test = nodes.Const(True)  # noqa: FBT003 - its place is taken while the rest is visited
        self.generic_visit(node)
        node.test = test
        return node

    def visit_Not(self, node: nodes.Not) -> nodes.Node:  # noqa: N802
        node.node = self.whole(node.node)
        return node

    def visit_And(self, node: nodes.And) -> nodes.Node:  # noqa: N802
        return _filtered(self._operands(node), "alone")

    def visit_Or(self, node: nodes.Or) -> nodes.Node:  # noqa: N802
        return _filtered(self._operands(node), "alone")

    def visit_CondExpr(self, node: nodes.CondExpr) -> nodes.Node:  # noqa: N802
        return _filtered(self._condition(node), "alone")

    def visit_Filter(self, node: nodes.Filter) -> nodes.Node:  # noqa: N802
        made: nodes.Node = self._asked(node)
        return made

    def visit_Test(self, node: nodes.Test) -> nodes.Node:  # noqa: N802
        made: nodes.Node = self._asked(node)
        return made

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        node.nodes = [_filtered(part, "charged") for part in node.nodes]
        return _filtered(node, "bounded")

    def visit_List(self, node: nodes.List) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        node.items = [_filtered(item, "held") for item in node.items]
        return node

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        if node.ctx == "load":
            node.items = [_filtered(item, "held") for item in node.items]
        return node

    def visit_Pair(self, node: nodes.Pair) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        node.key, node.value = _filtered(node.key, "held"), _filtered(node.value, "held")
        return node

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        if isinstance(node.expr, nodes.Const) and all(each.op not in SEARCHES for each in node.ops):
            return node
        for each in node.ops:
            if each.op in SEARCHES:
                each.expr = _filtered(each.expr, "searched")
            elif not isinstance(each.expr, nodes.Const):
                each.expr = _filtered(each.expr, "charged")
        return node

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        # Whatever a loop goes over, and however it was called, its body is what is run once more.
        node.body.insert(0, _paid(TURN, node.lineno))
        if node.test is not None:
            node.test = _filtered(node.test, "turn_asked")
        return node

    def visit_Output(self, node: nodes.Output) -> list[nodes.Node] | nodes.Node:  # noqa: N802
        self.generic_visit(node)
        size = sum(len(part.data) for part in node.nodes if isinstance(part, nodes.TemplateData))
        return [_paid(size >> 4, node.lineno), node] if size >= 16 else node

    def _asked(self, node: Any) -> Any:
        if node.name not in GUARDS or node.node is None:
            self.generic_visit(node)
            return node
        node.node = _filtered(self._guarded(node.node), "alone")
        node.args = [self.visit(arg) for arg in node.args]
        node.kwargs = [self.visit(arg) for arg in node.kwargs]
        return node

    def _condition(self, node: nodes.CondExpr) -> nodes.Expr:
        node.test, node.expr1 = self.whole(node.test), self.whole(node.expr1)
        node.expr2 = None if node.expr2 is None else self.whole(node.expr2)
        return node

    def _operands(self, node: nodes.BinExpr) -> nodes.Expr:
        node.left, node.right = _filtered(self.whole(node.left), "ran"), _filtered(self.whole(node.right), "ran")
        return node


def _paid(price: int, line: int) -> nodes.ExprStmt:
    """Return a statement that pays for what follows."""
    return nodes.ExprStmt(_filtered(nodes.Const(price, lineno=line), "turn"), lineno=line)


def _filtered(node: Any, name: str, *args: nodes.Expr) -> nodes.Filter:
    return nodes.Filter(node, name, list(args), [], None, None, lineno=node.lineno, environment=SANDBOX)


ERROR_FIELDS: Final = frozenset({
    "kind", "message", "retryable", "code", "source", "http_status", "status", "retry_after", "pg_code",
    "exception_type", "details",
})  # fmt: skip
"""What every error has; see `noetl.engine.tools.outcome.Problem`. `status` is `http_status` by another name."""


def with_error_fields(tree: nodes.Template) -> nodes.Template:
    """Return the template with `output.error.<field>` read as null where there is no error."""
    made: nodes.Template = _Rewriting().visit(tree)
    return made


class _Rewriting(NodeTransformer):
    def visit_Getattr(self, node: nodes.Getattr) -> nodes.Node:  # noqa: N802
        return self._read(node)

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:  # noqa: N802
        return self._read(node)

    def visit_Filter(self, node: nodes.Filter) -> nodes.Node:  # noqa: N802
        return self._guarding(node)

    def visit_Test(self, node: nodes.Test) -> nodes.Node:  # noqa: N802
        return self._guarding(node)

    def _read(self, node: nodes.Getattr | nodes.Getitem) -> nodes.Node:
        field = _field(node)
        if field is None:
            return self.generic_visit(node)
        asked = [nodes.Const(field, lineno=node.lineno)]
        return nodes.Filter(node.node, "error_field", asked, [], None, None, lineno=node.lineno, environment=SANDBOX)

    def _guarding(self, node: nodes.Filter | nodes.Test) -> nodes.Node:
        asked = node.node
        if asked is None or node.name not in GUARDS or _field(asked) is None:
            return self.generic_visit(node)
        node.args = [self.visit(argument) for argument in node.args]
        return node


def _field(node: nodes.Node) -> str | None:
    """Return the field of `output.error` that a node reads, if it is one that every error has."""
    name = _key(node)
    if name not in ERROR_FIELDS or _key(node.node) != "error":  # type: ignore[attr-defined]
        return None
    owner = node.node.node  # type: ignore[attr-defined]
    return name if isinstance(owner, nodes.Name) and owner.name == "output" else None


def _key(node: nodes.Node) -> str | None:
    if isinstance(node, nodes.Getattr):
        return node.attr
    if isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Const) and isinstance(node.arg.value, str):
        return node.arg.value
    return None
