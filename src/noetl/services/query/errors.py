"""Why a query was not answered. Messages name the place and what is allowed instead; literals of the query never appear."""

from __future__ import annotations

from noetl.errors import InputError, NoetlError


class QueryRefused(InputError):
    """The query is not one that may be asked."""

    code = "query_refused"

    def __init__(
        self, rule: str, message: str, *, line: int | None = None, column: int | None = None, hint: str | None = None
    ) -> None:
        where = "" if line is None else f"line {line}, column {column}: "
        super().__init__(f"{where}{message}", hint=hint, rule=rule, line=line, column=column)
        self.rule = rule
        """The word for the kind of refusal, which the audit keeps."""


class QueryFailed(InputError):
    """The engine could not run the query."""

    code = "query_failed"


class QueryTimedOut(InputError):
    """The query took longer than it may."""

    code = "query_timed_out"


class AnswerTooLarge(InputError):
    """The answer has more bytes than it may."""

    code = "answer_too_large"


class QueriesBusy(NoetlError):
    """The organization asks as many queries at once as it may."""

    code = "queries_busy"
    disposition = "transient"
