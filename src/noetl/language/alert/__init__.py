"""Alert rules and channels, as users write them: YAML goes in, values come out, or every problem with line and column.

Nothing here evaluates a condition or sends a message.
"""
