"""The parts a query may be made of, beside functions: each kind of node with the fields it may have. All else is refused."""

from __future__ import annotations

import re
from typing import Final

_QUERY: Final = "with_ order limit offset"
_OPERATORS: Final = """
    Add Sub Mul Div IntDiv Mod Neg Not EQ NEQ GT GTE LT LTE NullSafeEQ NullSafeNEQ Is Like ILike SimilarTo Glob Escape
    BitwiseAnd BitwiseOr BitwiseXor BitwiseNot BitwiseLeftShift BitwiseRightShift DPipe Any All
"""

SHAPES: Final[dict[str, frozenset[str]]] = {
    name: frozenset(fields.split())
    for name, fields in {
        "Select": f"expressions distinct from_ laterals joins where group having qualify windows {_QUERY}",
        "Union": f"this expression distinct by_name {_QUERY}",
        "Except": f"this expression distinct by_name {_QUERY}",
        "Intersect": f"this expression distinct by_name {_QUERY}",
        "Subquery": f"this alias joins laterals {_QUERY}",
        "Values": "expressions alias",
        "With": "expressions",
        "CTE": "this alias materialized",
        "From": "this",
        "Table": "this alias joins laterals",
        "TableAlias": "this columns",
        "Join": "this on using side kind method",
        "Lateral": "this alias view outer",
        "Where": "this",
        "Group": "expressions grouping_sets cube rollup all",
        "GroupingSets": "expressions",
        "Cube": "expressions",
        "Rollup": "expressions",
        "Having": "this",
        "Qualify": "this",
        "Order": "this expressions",
        "Ordered": "this desc nulls_first",
        "Limit": "this expression",
        "Offset": "this expression",
        "Distinct": "expressions on",
        "Window": "this partition_by order spec alias over first",
        "WindowSpec": "kind start start_side end end_side exclude",
        "Filter": "this expression",
        "WithinGroup": "this expression",
        "IgnoreNulls": "this",
        "RespectNulls": "this",
        "Alias": "this alias",
        "Aliases": "this expressions",
        "Paren": "this",
        "Tuple": "expressions",
        "Identifier": "this quoted",
        "Column": "this table db catalog",
        "Dot": "this expression",
        "Star": "except_ replace",
        "Literal": "this is_string",
        "Boolean": "this",
        "Null": "",
        "Var": "this",
        "Interval": "this unit",
        "IntervalSpan": "this expression",
        "DataType": "this expressions nested",
        "DataTypeParam": "this",
        "ColumnDef": "this kind",
        "Lambda": "this expressions colon",
        "PropertyEQ": "this expression",
        "JSONKeyValue": "this expression",
        "Bracket": "this expressions offset safe returns_list_for_maps json_access",
        "Slice": "this expression step",
        "Between": "this low high symmetric",
        "In": "this expressions query",
        "AtTimeZone": "this zone",
        "JSONPath": "expressions escape",
        "JSONPathRoot": "",
        "JSONPathKey": "this quoted",
        "JSONPathSubscript": "this",
        "JSONPathWildcard": "",
        **dict.fromkeys(_OPERATORS.split(), "this expression typed safe negate"),
    }.items()
}
"""The nodes of a query, by the name of their class, with the fields that may be set."""

WORDS: Final = re.compile(r"[A-Za-z][A-Za-z_ ]{0,29}")
"""What stands beside nodes as plain text: LEFT, ASOF, ROWS, CURRENT ROW."""
_UNITS: Final = """
    MICROSECOND MICROSECONDS MILLISECOND MILLISECONDS SECOND SECONDS MINUTE MINUTES HOUR HOURS DAY DAYS WEEK WEEKS MONTH
    MONTHS QUARTER QUARTERS YEAR YEARS DECADE CENTURY MILLENNIUM EPOCH DOW DAYOFWEEK ISODOW DOY DAYOFYEAR ISOYEAR
    YEAROFWEEK WEEKOFYEAR YEARWEEK DAYOFWEEKISO DAYOFWEEK_ISO WEEKISO NANOSECOND NANOSECONDS ERA TIMEZONE TIMEZONE_HOUR
    TIMEZONE_MINUTE BOTH LEADING TRAILING ALL
"""
_TYPES: Final = """
    BOOLEAN TINYINT SMALLINT INT BIGINT INT128 UTINYINT USMALLINT UINT UBIGINT UINT128 FLOAT DOUBLE DECIMAL TEXT VARCHAR
    CHAR NCHAR NVARCHAR BINARY VARBINARY DATE TIME TIMETZ TIMESTAMP TIMESTAMPTZ TIMESTAMPLTZ TIMESTAMPNTZ TIMESTAMP_S
    TIMESTAMP_MS TIMESTAMP_NS DATETIME INTERVAL JSON ARRAY LIST MAP STRUCT UUID BIT
"""
UNITS: Final = frozenset(_UNITS.split())
"""The bare words that queries may have: parts of dates, which end to trim, and ALL."""
JOINS: Final = frozenset({"", "LEFT", "RIGHT", "FULL", "INNER", "OUTER", "CROSS", "SEMI", "ANTI", "ASOF", "NATURAL"})
"""The words a join may have."""
TYPES: Final = frozenset(_TYPES.split())
"""The types that values may be cast to."""
NUMBER: Final = re.compile(r"[0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+\.(?:[eE][+-]?[0-9]+)?")
PLAIN_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
JSON_KEY: Final = re.compile(r"[\w .:@#+-]{1,128}")
"""A key within the path into a JSON value; others cannot be written back safely."""
