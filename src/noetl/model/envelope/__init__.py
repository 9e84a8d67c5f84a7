"""The event envelope, declared once: what every event carries, whatever its type.

`Draft` and `Event` in `noetl.model.event` are the declaration: each of their fields is annotated with a `Field`,
which says how the field is stored, how it stands in JSON and who gives it. Whatever else lists fields derives from
them: the JSON Schema and the columns of the ledger's tables and of the row a draft becomes (`columns`), and the SQL
that names these columns (`sql`).
"""
