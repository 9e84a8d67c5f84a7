"""Files of datasets: DataFrames and tables go in, Parquet files with their digests come out, and the way back.

`storage` knows where files lie, `parquet_files` one file, `executor_rows` works in executors, `reader` and `writer` are
for whole DataFrames, `integrity/` checks what is read. Manifests decide which files count; no directory is listed to
find data.
"""
