"""`output.error` in templates: after a success there is none, and its fields may be asked for all the same."""

from __future__ import annotations

from typing import Any

import pytest

from noetl.engine.tools.outcome import Outcome, Problem, failed
from noetl.errors import TemplateFailed
from noetl.language.templates.result_view import output_view
from noetl.language.templates.template import compiled
from noetl.language.templates.tree_rewrites import ERROR_FIELDS

FINE = Outcome(data=1).as_output(attempt=1, duration_ms=1.0)
LATE = failed("timeout", "late", retryable=True).as_output(attempt=1, duration_ms=1.0)


def rendered(source: str, output: Any) -> Any:
    return compiled(source).render({"output": output_view(output)})


def test_the_fields_are_those_that_every_error_has() -> None:
    assert {*Problem.__struct_fields__, "status"} == ERROR_FIELDS


@pytest.mark.parametrize("field", sorted(ERROR_FIELDS))
def test_after_a_success_every_field_of_an_error_is_null(field: str) -> None:
    for source in (f"{{{{ output.error.{field} }}}}", f"{{{{ output['error']['{field}'] }}}}"):
        assert rendered(source, FINE) is None
    # The same by Jinja itself, which everyday expressions are not left to.
    assert rendered(f"{{% if output.error.{field} is none %}}none{{% endif %}}", FINE) == "none"


@pytest.mark.parametrize(
    ("source", "fine", "late"),
    [
        ("{{ output.error.kind == 'timeout' }}", False, True),
        ("{{ output.error.kind in ['timeout', 'rate_limit'] }}", False, True),
        ("{{ output.error.retryable and output.error.kind != 'auth' }}", None, True),
        ("{{ output.error is none }}", True, False),
        ("{{ output.error == none }}", True, False),
        ("{{ none != output.error }}", False, True),
        ("{{ 'bad' if output.error else 'good' }}", "good", "bad"),
        ("{{ output.error.kind | tojson }}", "null", '"timeout"'),
        ("{{ (output.error | tojson)[:7] }}", "null", '{"kind"'),
        ("{{ output.error.message | default('none') }}", "none", "late"),
        ("{{ output.error.kind is defined }}", False, True),
        ("{{ output.error.http_status }}", None, None),
        ("{{ [output.error.kind] }}", [None], ["timeout"]),
        ("{% set e = output.error.kind %}{{ e }}!", "None!", "timeout!"),
    ],
)
def test_a_condition_may_ask_for_the_error_first(source: str, fine: Any, late: Any) -> None:
    assert rendered(source, FINE) == fine
    assert rendered(source, LATE) == late


def test_the_error_itself_stays_null_for_whoever_records_it() -> None:
    assert FINE["error"] is None
    assert rendered("{{ output.error }}", FINE) is None
    assert rendered("{{ output }}", FINE) == FINE["data"]


def test_what_an_error_does_not_say_is_null() -> None:
    """Errors of children and loops are recorded without the fields that have no value."""
    loop = {"status": "error", "error": {"kind": "unknown", "message": "1 of 2 rows failed", "retryable": False}}
    assert rendered("{{ output.error.http_status == 429 }}", loop) is False
    assert rendered("{% if output.error.http_status is none %}none{% endif %}", loop) == "none"
    assert rendered("{{ output.error.kind }}", loop) == "unknown"


@pytest.mark.parametrize("output", [FINE, LATE], ids=["fine", "late"])
@pytest.mark.parametrize("source", ["{{ output.error.knid }}", "{% if output.error.knid %}{% endif %}"])
def test_a_field_that_no_error_has_is_an_error(source: str, output: Any) -> None:
    with pytest.raises(TemplateFailed, match=r"'output\.error\.knid' is undefined"):
        rendered(source, output)


def test_only_the_outcome_is_read_this_way() -> None:
    with pytest.raises(TemplateFailed, match=r"'step\.error\.kind' is undefined"):
        compiled("{{ step.error.kind }}").render({"step": {"error": None}})
    with pytest.raises(TemplateFailed, match="'output' is undefined"):
        compiled("{{ output.error.kind }}").render({})
    with pytest.raises(TemplateFailed, match=r"'output\.error' is undefined"):
        rendered("{{ output.error.kind }}", {"status": "ok"})
