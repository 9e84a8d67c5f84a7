"""Tables in this process: Arrow tables go in, Parquet files of partitions come out, and the way back.

`column_types` and `json_columns` convert types and values, `checks` answers checks with DuckDB, `lake_files` reads and
writes the lake. Nothing is committed here.
"""
