"""Lets templates ask `output.error.kind` whether or not there is an error: a parsed template goes in and out.

After a success `output.error` is null, and so is each of the fields that every error has. Any other name below it stays
an error, and so does whatever `default` and `is defined` are asked about: they keep telling that there is no error.
"""

from __future__ import annotations

from typing import Final

from jinja2 import nodes
from jinja2.visitor import NodeTransformer

from noetl.playbook.closures import GUARDS
from noetl.playbook.sandbox import SANDBOX

ERROR_FIELDS: Final = frozenset({
    "kind", "message", "retryable", "code", "source", "http_status", "status", "retry_after", "pg_code",
    "exception_type", "details",
})  # fmt: skip
"""What every error has; see `noetl.execute.outcome.Problem`. `status` is `http_status` by another name."""


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
