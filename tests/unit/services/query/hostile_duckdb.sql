-- Statements that must never reach DuckDB, each after the reason why. The published datasets are those of the market.

-- a file as a table
SELECT * FROM '/etc/passwd'
-- a Parquet file as a table
SELECT * FROM 'lake/secret.parquet'
-- a file as a quoted name
SELECT * FROM "/etc/passwd"
-- a CSV file with an alias that looks like a dataset
SELECT * FROM '/tmp/x.csv' AS orders
-- an object of S3 as a table
SELECT * FROM 's3://bucket/secret.parquet'
-- a URL as a table
SELECT * FROM 'https://example.org/x.parquet'
-- files by pattern as a table
SELECT * FROM 'lake/*/*.parquet'
-- a file in a subquery
SELECT * FROM (SELECT * FROM '/etc/passwd') AS t
-- a file in WITH
WITH t AS (SELECT * FROM '/etc/passwd') SELECT * FROM t
-- a file in EXISTS
SELECT 1 WHERE EXISTS (SELECT * FROM '/etc/passwd')
-- a file in IN
SELECT 1 WHERE 1 IN (SELECT 1 FROM '/etc/passwd')
-- a file as a scalar
SELECT (SELECT count(*) FROM '/etc/passwd') AS n
-- a file in a join
SELECT * FROM orders JOIN '/etc/passwd' AS p ON true
-- a file after a comma
SELECT * FROM orders, '/etc/passwd'
-- a file in a UNION
SELECT o_orderkey FROM orders UNION ALL SELECT * FROM '/etc/passwd'
-- a file in LATERAL
SELECT * FROM orders, LATERAL (SELECT * FROM '/etc/passwd') AS t
-- a file in ORDER BY
SELECT 1 ORDER BY (SELECT 1 FROM '/etc/passwd')
-- a file in LIMIT
SELECT 1 LIMIT (SELECT count(*) FROM '/etc/passwd')
-- a file in a window
SELECT sum(1) OVER (ORDER BY (SELECT 1 FROM '/etc/passwd'))
-- a file in a CASE
SELECT CASE WHEN true THEN (SELECT 1 FROM '/etc/passwd') END
-- a file from FROM first
FROM '/etc/passwd'
-- a file from TABLE
TABLE '/etc/passwd'
-- a file named like a query of WITH outside of its scope
SELECT * FROM (WITH "/etc/passwd" AS (SELECT 1) SELECT * FROM "/etc/passwd") AS a, "/etc/passwd"
-- a file named like a later query of WITH
WITH a AS (SELECT * FROM "/etc/passwd"), "/etc/passwd" AS (SELECT 1) SELECT * FROM a
-- a query of WITH that reads itself
WITH "/etc/passwd" AS (SELECT * FROM "/etc/passwd") SELECT * FROM "/etc/passwd"
-- read_csv
SELECT * FROM read_csv('/etc/passwd')
-- read_csv_auto
SELECT * FROM read_csv_auto('/etc/passwd')
-- read_parquet
SELECT * FROM read_parquet('lake/secret.parquet')
-- read_parquet of a list
SELECT * FROM read_parquet(['a.parquet', 'b.parquet'])
-- parquet_scan
SELECT * FROM parquet_scan('lake/secret.parquet')
-- read_json
SELECT * FROM read_json('/tmp/x.json')
-- read_json_objects
SELECT * FROM read_json_objects('/tmp/x.json')
-- read_ndjson_auto
SELECT * FROM read_ndjson_auto('/tmp/x.json')
-- read_text
SELECT * FROM read_text('/etc/passwd')
-- read_text as a scalar
SELECT read_text('/etc/passwd')
-- read_blob
SELECT * FROM read_blob('/etc/shadow')
-- glob
SELECT * FROM glob('/etc/*')
-- sniff_csv
SELECT * FROM sniff_csv('/etc/passwd')
-- parquet_metadata
SELECT * FROM parquet_metadata('lake/secret.parquet')
-- parquet_schema
SELECT * FROM parquet_schema('lake/secret.parquet')
-- parquet_kv_metadata
SELECT * FROM parquet_kv_metadata('lake/secret.parquet')
-- read_duckdb
SELECT * FROM read_duckdb('/tmp/other.duckdb')
-- a reader in capital letters
SELECT * FROM READ_TEXT('/etc/passwd')
-- a reader in quotes
SELECT * FROM "read_text"('/etc/passwd')
-- a reader of a schema
SELECT * FROM main.read_text('/etc/passwd')
-- a reader of a catalog
SELECT * FROM system.main.read_text('/etc/passwd')
-- a reader in LATERAL
SELECT * FROM orders, LATERAL read_text('/etc/passwd')
-- a reader in a subquery of SELECT
SELECT (SELECT content FROM read_text('/etc/passwd'))
-- a reader in UNNEST
SELECT * FROM unnest(read_text('/etc/passwd'))
-- SQL in a text
SELECT * FROM query('SELECT * FROM read_text(''/etc/passwd'')')
-- a table by its name in a text
SELECT * FROM query_table('secrets')
-- serialized SQL
SELECT * FROM json_execute_serialized_sql('{}')
-- raw memory as a table
SELECT * FROM arrow_scan(1, 2, 3)
-- an object of Python as a table
SELECT * FROM pandas_scan(140000000)
-- a scan of a table by its address
SELECT * FROM seq_scan('secrets')
-- settings as a table
SELECT * FROM duckdb_settings()
-- secrets as a table
SELECT * FROM duckdb_secrets()
-- which secret a path has
SELECT * FROM which_secret('s3://bucket', 's3')
-- the functions there are
SELECT * FROM duckdb_functions()
-- databases that are open
SELECT * FROM duckdb_databases()
-- tables of the catalog
SELECT * FROM information_schema.tables
-- tables of PostgreSQL's catalog
SELECT * FROM pg_catalog.pg_class
-- the master table
SELECT * FROM sqlite_master
-- extensions
SELECT * FROM duckdb_extensions()
-- logs
SELECT * FROM duckdb_logs()
-- a setting
SELECT current_setting('home_directory')
-- a variable of the environment
SELECT getenv('HOME')
-- a variable of the session
SELECT getvariable('x')
-- who the user is
SELECT current_user
-- the database
SELECT current_database()
-- the schema search path
SELECT current_schemas(true)
-- the text of this very query
SELECT current_query()
-- the version
SELECT version()
-- a sequence
SELECT nextval('s')
-- sleeping
SELECT sleep_ms(100000)
-- sleeping as PostgreSQL calls it
SELECT pg_sleep(1000)
-- writing to the log
SELECT write_log('x')
-- an error of one's own making
SELECT error('x')
-- a function nobody knows
SELECT no_such_function(1)
-- an aggregate over a function that is not known
SELECT sum(no_such_function(o_orderkey)) FROM orders
-- a call with a dot
SELECT o_comment.read_text() FROM orders
-- a call in a lambda
SELECT list_transform([1], lambda x: getenv('HOME'))
-- a random number, which no mark can give again
SELECT random()
-- a new id, which no mark can give again
SELECT uuid()
-- a sample, which no mark can give again
SELECT * FROM orders TABLESAMPLE 10%
-- a sample written otherwise
SELECT * FROM orders USING SAMPLE 5
-- a second statement
SELECT 1; DROP TABLE orders
-- a second statement after a comment
SELECT 1; -- nothing
SELECT 2
-- a second statement that reads a file
SELECT 1;SELECT * FROM '/etc/passwd'
-- a second statement after an empty one
SELECT 1;;SELECT 2
-- COPY
COPY (SELECT * FROM orders) TO '/tmp/x.csv'
-- COPY FROM
COPY orders FROM '/tmp/x.csv'
-- ATTACH
ATTACH '/tmp/x.duckdb' AS x
-- DETACH
DETACH x
-- INSTALL
INSTALL httpfs
-- LOAD
LOAD httpfs
-- SET
SET enable_external_access = true
-- SET GLOBAL
SET GLOBAL memory_limit = '100GB'
-- RESET
RESET enable_external_access
-- PRAGMA
PRAGMA database_list
-- PRAGMA that writes a file
PRAGMA profiling_output = '/tmp/x'
-- CALL
CALL pragma_version()
-- EXPORT
EXPORT DATABASE '/tmp/x'
-- IMPORT
IMPORT DATABASE '/tmp/x'
-- CREATE TABLE
CREATE TABLE x AS SELECT * FROM orders
-- CREATE VIEW
CREATE VIEW x AS SELECT 1
-- CREATE SECRET
CREATE SECRET s (TYPE s3, KEY_ID 'x', SECRET 'y')
-- CREATE MACRO
CREATE MACRO f(x) AS read_text(x)
-- INSERT
INSERT INTO orders SELECT * FROM orders
-- INSERT after WITH
WITH a AS (SELECT 1) INSERT INTO orders SELECT * FROM a
-- UPDATE
UPDATE orders SET o_orderkey = 1
-- DELETE
DELETE FROM orders
-- DELETE within WITH
WITH a AS (DELETE FROM orders RETURNING *) SELECT * FROM a
-- DROP
DROP TABLE orders
-- ALTER
ALTER TABLE orders ADD COLUMN x INTEGER
-- TRUNCATE
TRUNCATE orders
-- VACUUM
VACUUM
-- CHECKPOINT
CHECKPOINT
-- BEGIN
BEGIN TRANSACTION
-- EXPLAIN
EXPLAIN SELECT * FROM orders
-- EXPLAIN ANALYZE
EXPLAIN ANALYZE SELECT * FROM orders
-- DESCRIBE
DESCRIBE orders
-- DESCRIBE in a subquery
SELECT * FROM (DESCRIBE orders)
-- SHOW in a subquery
SELECT * FROM (SHOW TABLES)
-- SUMMARIZE
SUMMARIZE orders
-- SUMMARIZE in a subquery
SELECT * FROM (SUMMARIZE orders)
-- PREPARE
PREPARE p AS SELECT 1
-- EXECUTE
EXECUTE p
-- USE
USE other
-- SELECT INTO
SELECT * INTO stolen FROM orders
-- FOR UPDATE
SELECT * FROM orders FOR UPDATE
-- a pivot, which runs statements of its own
PIVOT orders ON o_orderpriority USING sum(o_totalprice)
-- a pivot in FROM
SELECT * FROM orders PIVOT (sum(o_totalprice) FOR o_orderpriority IN ('1-URGENT'))
-- a parameter
SELECT $1
-- a named parameter
SELECT $name
-- a question mark
SELECT ?
-- a dataset of another schema
SELECT * FROM main.orders
-- a dataset of another database
SELECT * FROM other.main.orders
-- a dataset at another time
SELECT * FROM orders AT (VERSION => 1)
-- a dataset that is not published
SELECT * FROM shop.orders.0
-- a dataset that nobody has
SELECT * FROM payroll
-- a name the gate gives
SELECT * FROM __noetl_0
-- a name the gate gives, in quotes and capitals
SELECT * FROM "__NOETL_1"
-- a query of WITH by a name the gate gives
WITH __noetl_0 AS (SELECT 1) SELECT * FROM __noetl_0
-- a query of WITH that hides a dataset
WITH orders AS (SELECT 1 AS o_orderkey) SELECT * FROM orders
-- a query of WITH that hides a dataset in other letters
WITH "ORDERS" AS (SELECT 1) SELECT * FROM orders
-- a nested WITH that hides a dataset
SELECT * FROM (WITH nation AS (SELECT 1) SELECT * FROM nation) AS t
-- recursion without end
WITH RECURSIVE t AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM t) SELECT * FROM t
-- recursion with a key
WITH RECURSIVE t(n) USING KEY (n) AS (SELECT 1 UNION SELECT n + 1 FROM t) SELECT * FROM t
-- more rows than a series may have
SELECT * FROM range(1000000000)
-- a series with an end that is computed
SELECT * FROM range(1000 * 1000 * 1000)
-- a series with an end from data
SELECT * FROM orders, range(o_orderkey)
-- a series whose step is so small
SELECT * FROM generate_series(TIMESTAMP '2000-01-01', TIMESTAMP '2030-01-01', INTERVAL 1 SECOND)
-- a list of too many elements
SELECT unnest(range(0, 99999999999))
-- a text of a thousand million characters
SELECT repeat('x', 1000000000)
-- a text as long as data say
SELECT repeat('x', o_orderkey) FROM orders
-- a text padded without end
SELECT lpad('x', 1000000000, 'y')
-- a format with a width without end
SELECT printf('%1000000000d', 1)
-- another such format
SELECT format('{:1000000000}', 1)
-- a hint
SELECT /*+ hint */ * FROM orders
-- a comment for another engine
SELECT /*! 1 */ * FROM orders
-- a text in dollars
SELECT $$text$$
-- a text with escapes
SELECT E'\x41'
-- a number that runs into a word
SELECT 0x1F
-- a name with a line break
SELECT 1 AS "a
b"
-- a name without letters
SELECT 1 AS ""
-- columns by pattern
SELECT COLUMNS('o_.*') FROM orders
-- a column by position
SELECT #1 FROM orders
-- a list comprehension
SELECT [getenv(x) FOR x IN ['HOME']]
-- a type of one's own
SELECT CAST('x' AS my_type)
-- a type that is a name of the catalog
SELECT 'orders'::regclass
-- a comment that is not closed
SELECT 1 /* and so on
-- a text that is not closed
SELECT 'and so on
-- nothing at all
;
-- only a comment
-- nothing
-- no SQL
hello there
-- half a query
SELECT FROM WHERE
-- parentheses without end
SELECT ((((((((((1
-- a macro in WITH
WITH FUNCTION f(x) AS (read_text(x)) SELECT f('/etc/passwd')
-- rows from several functions
SELECT * FROM ROWS FROM (read_text('/etc/passwd'), range(3))
-- ordinality of a reader
SELECT * FROM read_text('/etc/passwd') WITH ORDINALITY
-- MATCH_RECOGNIZE
SELECT * FROM orders MATCH_RECOGNIZE (ORDER BY o_orderkey MEASURES a.o_orderkey AS x PATTERN (a) DEFINE a AS true)
-- a table function by a name of a dataset
SELECT * FROM orders('x')
