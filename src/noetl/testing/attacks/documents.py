"""Documents that are small to write and large to evaluate: templates, YAML, JSON, SQL, cron expressions.

Each is what a user may send. None of them may stop the process that evaluates it, take up its memory, or be tried for
ever.
"""

from __future__ import annotations

from typing import Final

_NESTED: Final = "".join(f"{{% for x{n} in range(99999) %}}" for n in range(6)) + "{% endfor %}" * 6
_LONG: Final = "('x' * 9000000)"

ENDLESS_TEMPLATES: Final[dict[str, str]] = {
    "nested loops": _NESTED,
    "nested loops over one list": (
        "{% set r = range(99999) | list %}{% for a in r %}{% for b in r %}{% endfor %}{% endfor %}"
    ),
    "nested loops in an expression's filter": "{% filter upper %}" + _NESTED + "{% endfilter %}",
    "a loop whose condition leaves all out": "".join(
        f"{{% for x{n} in range(99999) if false %}}{{% endfor %}}" for n in range(60)
    ),
    "a macro that calls itself twice": (
        "{% macro f(n) %}{% if n > 0 %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(40) }}"
    ),
    "a loop that calls itself": (
        "{% for x in [1, 2] recursive %}{% if loop.depth < 40 %}{{ loop([1, 2]) }}{% endif %}{% endfor %}"
    ),
    "a block that is called twice": (
        "{% set ns = namespace(n=0) %}{% block b %}{% set _ = ns %}{% endblock %}"
        "{% for x in range(99999) %}{% for y in range(99999) %}{{ self.b() }}{% endfor %}{% endfor %}"
    ),
    "what is selected from all and left out": (
        "{% for a in range(99999) %}{{ range(99999) | select('eq', -1) | list }}{% endfor %}"
    ),
    "sorting again and again": "{% for a in range(99999) %}{{ range(99999) | sort | first }}{% endfor %}",
    "sums again and again": "{% for a in range(99999) %}{{ range(99999) | sum }}{% endfor %}",
    "looking through a list again and again": (
        "{% set all = range(99999) | list %}{% for a in range(99999) %}{{ -1 in all }}{% endfor %}"
    ),
    "looking through a text again and again": (
        "{% set all = " + _LONG + " %}{% for a in range(99999) %}{{ 'xy' in all }}{% endfor %}"
    ),
    "comparing two lists again and again": (
        "{% set a = range(99999) | list %}{% set b = range(99999) | list %}"
        "{% for x in range(99999) %}{{ a == b }}{% endfor %}"
    ),
    "slices again and again": (
        "{% set a = range(99999) | list %}{% for x in range(99999) %}{% set b = a[1:] %}{% endfor %}"
    ),
    "methods of a text again and again": (
        "{% set a = " + _LONG + " %}{% for x in range(99999) %}{% set b = a.upper() %}{% endfor %}"
    ),
    "methods of a list again and again": (
        "{% set a = range(99999) | list %}{% for x in range(99999) %}{% set b = a.count(-1) %}{% endfor %}"
    ),
    "attributes through a long path": (
        "{{ range(99999) | map(attribute='.'.join(['a'] * 9999), default={}) | list | length }}"
    ),
    "an argument that is a list written out": (
        "{% macro f() %}{{ varargs | length }}{% endmacro %}{% set a = range(99999) | list %}"
        "{% for x in range(99999) %}{{ f(*a) }}{% endfor %}"
    ),
    "a precision": "{{ 1.5 | round(1000000000, 'ceil') }}",
    "a precision, known when the template is read": "{% set x = 1.5 | round(1000000000, 'ceil') %}",
    "tags in a text": "{{ ('<!--a-->' * 900000) | striptags }}",
    "words in a text": "{{ ('a-' * 4000000) | wordwrap(1) }}",
    "links in a text": "{{ ('www.' * 2000000) | urlize }}",
    "a format with many names that do not end": "{{ ('%(' * 4000000) % {'a': 1} }}",
    "a format with many colons": "{{ ('{' ~ ':' * 8000000).format(1) }}",
}
"""Templates that would be evaluated for minutes at least, most of them for years."""

LENGTHY_TEMPLATE: Final = "{% for x in range(30000) %}{% endfor %}true"
"""One that is true, and too long for an event loop."""

_DOUBLING: Final = "{% set ns = namespace(v=[1], w=[1]) %}{% for n in range(40) %}{% set ns.v = [ns.v, ns.v] %}"

ENORMOUS_TEMPLATES: Final[dict[str, str]] = {
    "a number squared again and again": (
        "{% set ns = namespace(n=3) %}{% for x in range(60) %}{% set ns.n = ns.n * ns.n %}{% endfor %}{{ ns.n % 7 }}"
    ),
    "a number out of hexadecimal digits": "{{ ('f' * 9000000) | int(base=16) }}",
    "a number as bytes": "{{ (1).to_bytes(9000000000, 'big') | length }}",
    "a list that holds the last one twice": _DOUBLING + "{% endfor %}{{ ns.v }}",
    "a list that holds the last one twice, as JSON": _DOUBLING + "{% endfor %}{{ ns.v | tojson }}",
    "two lists that hold their last ones twice": (
        _DOUBLING + "{% set ns.w = [ns.w, ns.w] %}{% endfor %}{{ ns.v == ns.w }}"
    ),
    "a list of one list over and over": "{{ ([[1] * 99999] * 99999) | tojson }}",
    "keys that share one list": "{{ {}.fromkeys(range(99999), range(99999) | list) | tojson }}",
    "texts joined by a long one": "{{ (" + _LONG + ").join(range(99999) | map('string') | list) }}",
    "texts joined by a long one, by a filter": "{{ range(99999) | join(" + _LONG + ") }}",
    "a text for each character": "{{ 'a'.join(['x']) | replace('x', " + _LONG + ") | replace('x', 'yy') }}",
    "letters translated into long texts": "{{ ('a' * 99999).translate({97: " + _LONG + "}) | length }}",
    "tabs": "{{ ('\\t' * 9000000).expandtabs(99999) | length }}",
    "lines moved to the right": "{{ ('\\n' * 9000000) | indent(99999, true, true) | length }}",
    "lines moved to the right by a text": "{{ ('a\\n' * 999999) | indent(" + _LONG + ") | length }}",
    "one value in many fields": "{{ ('%(a)s' * 99999) % {'a': " + _LONG + "} }}",
    "one value in many fields of braces": "{{ ('{0}' * 99999).format(" + _LONG + ") }}",
    "many wide fields": "{{ ('%99999d' * 99999) % ((1,) * 99999) }}",
    "many wide fields of braces": "{{ ('{0:99999}' * 99999).format(1) }}",
    "a list filled up": "{{ [] | batch(9000000000, 'x') | list }}{{ [1] | batch(9000000000, 'x') | list }}",
    "a great many slices": "{{ [1] | slice(900000000) | list | length }}",
    "an indentation": "{{ [[[1]]] | tojson(indent=900000000) }}",
    "lists added up": "{{ ([[1] * 9999] * 999) | sum(start=[]) | length }}",
    "a text written over and over": (
        "{% set x %}{% for a in range(99999) %}{{ " + _LONG + " }}{% endfor %}{% endset %}{{ x | length }}"
    ),
    "its own source written over and over": (
        "{% set x %}{% for a in range(99999) %}" + "lorem ipsum " * 1_600 + "{% endfor %}{% endset %}{{ x | length }}"
    ),
    "texts one after another": "{{ " + " ~ ".join([_LONG] * 99) + " }}",
    "texts side by side": ("{{ " + _LONG + " }}") * 99,
}
"""Templates that would take up more memory than a machine has."""


def playbook_with(text: str) -> str:
    """Return a playbook with a template where a decision evaluates it: in the condition of an arc."""
    condition = text.replace("'", "''")
    return f"""
apiVersion: noetl.io/v2
kind: Playbook
metadata: {{name: endless, path: attacks/endless}}
workflow:
  - step: first
    tool: {{kind: python, code: "result = 1"}}
    next:
      arcs:
        - {{step: second, when: '{condition}'}}
  - step: second
    tool: {{kind: noop}}
"""


def _laughing() -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [" + ", ".join([f"*a{n - 1}"] * 9) + "]" for n in range(1, 12)]
    return "\n".join(lines)


PLAYBOOKS: Final[dict[str, str]] = {
    "aliases of aliases": _laughing(),
    "lists in lists": "[" * 100_000,
    "lists in lists, closed": "[" * 5_000 + "]" * 5_000,
    "mappings in mappings": "{a: " * 5_000 + "1" + "}" * 5_000,
    "an integer of a million digits": "a: " + "9" * 900_000,
    "a million keys": "\n".join(f"k{n}: 1" for n in range(120_000))[:990_000],
    "parentheses in a template": playbook_with("{{ " + "(" * 50_000 + "1" + ")" * 50_000 + " }}"),
    "operators in a template": playbook_with("{{ " + "not " * 50_000 + "1 }}"),
    "openings of expressions in a comment": playbook_with("{# " + "{{ " * 100_000 + "#}{{ nothing }}"),
}
"""Sources of playbooks that take long to read, most of which are refused."""

BODIES: Final[dict[str, bytes]] = {
    "lists in lists": b"[" * 1_000_000,
    "mappings in mappings": b'{"a":' * 200_000 + b"1" + b"}" * 200_000,
    "an integer of a million digits": b'{"path": "x", "workload": {"n": ' + b"9" * 1_000_000 + b"}}",
}
"""Bodies of requests that are refused at once."""

CRON_NEVER_DUE: Final = ("0 0 30 2 *", "0 0 31 2,4,6,9,11 *", "* * * * * * *", "0 0 99999999999 * *", "*/0 * * * *")
SQL_CONDITIONS: Final = ("(" * 4_000 + "a = 1", "a = 1 AND " * 5_000 + "a = 1", "NOT " * 2_000 + "a = 1")


def longest_templates(characters: int) -> dict[str, str]:
    """Return templates of at most so many characters that take long to make."""
    block = "{% if a %}{% endif %}"
    rest = characters - len(block)
    return {
        "blocks and values": block + "{{a}}" * (rest // 5),
        "chains of filters": block + "{{a|d|d|d}}" * (rest // 11),
        "a list": "{{[" + "a," * ((characters - 6) // 2) + "]}}",
        "assignments": "{% set a=a %}" * (characters // 13),
    }
