"""A playbook that is one loop: in go its rows and what is done for each, out comes its text, `demo/hello`."""

from __future__ import annotations


def hello_loop(rows: int, tool: str = "{kind: noop}") -> str:
    """Return the playbook with so many rows."""
    return f"""\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {{name: hello, path: demo/hello}}
workflow:
  - step: each
    loop: {{in: "{{{{ range({rows}) }}}}", iterator: item, spec: {{mode: parallel, max_in_flight: 2}}}}
    tool: {tool}
"""
