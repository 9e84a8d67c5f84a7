"""Writes the reference page of all settings from their declarations, and the text of values for people.

Reads nothing but the declarations, so the page is the same on every machine.
"""

from __future__ import annotations

import json
import re
from itertools import groupby
from pathlib import Path as FilePath
from typing import Any, Literal, get_args, get_origin

from annotated_types import Ge, Gt, Le
from pydantic_core import PydanticUndefined

from noetl.runtime.config.environment import OTHER
from noetl.runtime.config.problems import Path
from noetl.runtime.config.schema import SHORT, Bound, Leaf, leaves, variable
from noetl.runtime.settings.declaration import Settings
from noetl.runtime.settings.types import Planned, SecretText, SecretUrl

_INTRODUCTION = """# Configuration

Settings come from three sources, each over the one before:

1. the defaults on this page;
2. a YAML file: the one given with `--config`, else `$NOETL_CONFIG`, else `noetl.yaml` of the project;
3. environment variables.

In the file, `${NAME}` stands for an environment variable and `${NAME:-default}` for a variable with a default; an unset
variable without a default is an error, and a literal `${` is written `$${`. A value that is made of variables alone and
comes out empty counts as not given, and so does an empty variable of the environment. `null` clears a setting that may
be null, in a variable too; a list in a variable is separated by commas. Relative paths start at the working directory.

`noetl config show --origin` prints the settings in force and where each came from; `noetl config check` lists every
problem of a configuration at once. This page is printed by `noetl config reference`.

```yaml
database:
  url: ${NOETL_DATABASE_URL}
payload_store:
  backend: s3
  connection:
    bucket: noetl-payloads
    region: ${AWS_REGION:-eu-central-1}
```
"""

_PLAIN = re.compile(r"[A-Za-z0-9./]([\w./@*+:?=&%-]*[\w./*])?")

_TYPES: dict[Any, str] = {
    str: "text",
    int: "whole number",
    float: "number",
    bool: "`true` or `false`",
    FilePath: "path",
    SecretUrl: "URL, password masked",
    SecretText: "secret text",
}


def render() -> str:
    """Write the reference page as Markdown."""
    parts = [_INTRODUCTION]
    for section, group in groupby(leaves(), key=lambda one: one[0][0]):
        about = Settings.model_fields[section]
        parts.append(f"## {section}\n\n{_about(about.annotation)}\n")
        rows = [
            "| Setting | Type | Default | Environment variable | Meaning |",
            "|---|---|---|---|---|",
            *(_row(path, leaf) for path, leaf in group),
        ]
        parts.append("\n".join(rows) + "\n")
    other = [f"| `{name}` | {meaning} |" for name, meaning in OTHER.items()]
    parts.append("## Other variables\n\n" + "\n".join(["| Variable | Meaning |", "|---|---|", *other]) + "\n")
    return "\n".join(parts)


def _about(annotation: Any) -> str:
    if get_origin(annotation) is dict:
        return f"{get_args(annotation)[1].__doc__} Each stands under a name of your choice."
    return str(annotation.__doc__)


def _row(path: Path, leaf: Leaf) -> str:
    regular = "NOETL_" + "__".join(path).upper()
    variables = [f"`{variable(path)}`"] + ([f"`{regular}`"] if path in SHORT else [])
    cells = [f"`{'.'.join(path)}`", _type(leaf), _default(leaf), " or ".join(variables), str(leaf.field.description)]
    return f"| {' | '.join(cells)} |"


def _type(leaf: Leaf) -> str:
    if get_origin(leaf.type) is Literal:
        text = " or ".join(f"`{value}`" for value in get_args(leaf.type))
    elif any(isinstance(bound, Planned) for bound in leaf.bounds):
        text = "no choice yet"
    else:
        text = _TYPES[leaf.type]
    text += "".join(map(_bound, leaf.bounds))
    return (f"list of {text}" if leaf.many else text) + (", or null" if leaf.nullable else "")


def _bound(bound: Bound) -> str:
    if isinstance(bound, Ge):
        return f", at least {bound.ge}"
    if isinstance(bound, Gt):
        return f", more than {bound.gt}"
    if isinstance(bound, Le):
        return f", at most {bound.le}"
    return f"; not in this version: {', '.join(f'`{value}`' for value in bound.values)}"


def _default(leaf: Leaf) -> str:
    extra = leaf.field.json_schema_extra
    if isinstance(extra, dict):
        return str(extra["default"])
    return "needed" if leaf.field.default is PydanticUndefined else f"`{text(leaf.field.default)}`"


def text(value: object) -> str:
    """Write a value as YAML on one line, as the file reader takes it; secrets are masked."""
    if isinstance(value, tuple):
        return f"[{', '.join(map(text, value))}]"
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    plain = str(value).replace("${", "$${")
    return plain if _PLAIN.fullmatch(plain) and plain.lower() != "null" else json.dumps(plain, ensure_ascii=False)
