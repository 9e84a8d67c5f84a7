"""The grammar of playbooks, as tables of shapes: the whole document, the flow between steps, and tasks.

Each key of the language is listed here or under `kinds`, and nowhere else. The matcher and the JSON Schema both use
these tables. No table checks references between parts.
"""
