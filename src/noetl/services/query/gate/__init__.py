"""The gate: the text of one SELECT goes in; SQL made of known parts only comes out, or a refusal.

`tree_check` looks at every node; `nodes`, `functions` and `bounds` say what is allowed. Pure: no query is run here, and
no message repeats a literal.
"""
