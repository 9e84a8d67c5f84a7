-- Statements that must never reach Spark, each after the reason why. The published datasets are those of the market.

-- a path as a table
SELECT * FROM parquet.`/lake/secret.parquet`
-- a CSV file as a table
SELECT * FROM csv.`/etc/passwd`
-- a text file as a table
SELECT * FROM text.`/etc/passwd`
-- a JSON file as a table
SELECT * FROM json.`/tmp/x.json`
-- binary files as a table
SELECT * FROM binaryFile.`/etc/*`
-- an ORC file as a table
SELECT * FROM orc.`/tmp/x.orc`
-- a Delta table by its path
SELECT * FROM delta.`/lake/other`
-- an Iceberg table by its path
SELECT * FROM iceberg.`/lake/other`
-- an object of S3 as a table
SELECT * FROM parquet.`s3a://bucket/secret`
-- a path in capital letters
SELECT * FROM PARQUET.`/lake/secret.parquet`
-- a path with its format in backticks
SELECT * FROM `parquet`.`/lake/secret.parquet`
-- a path without its format
SELECT * FROM `/lake/secret.parquet`
-- a path in one pair of backticks
SELECT * FROM `parquet./lake/secret.parquet`
-- a path in a subquery
SELECT * FROM (SELECT * FROM text.`/etc/passwd`) AS t
-- a path in WITH
WITH t AS (SELECT * FROM text.`/etc/passwd`) SELECT * FROM t
-- a path in EXISTS
SELECT 1 WHERE EXISTS (SELECT * FROM text.`/etc/passwd`)
-- a path in IN
SELECT 1 WHERE 'x' IN (SELECT value FROM text.`/etc/passwd`)
-- a path as a scalar
SELECT (SELECT count(*) FROM text.`/etc/passwd`) AS n
-- a path in a join
SELECT * FROM orders JOIN text.`/etc/passwd` AS p ON true
-- a path after a comma
SELECT * FROM orders, text.`/etc/passwd`
-- a path in a UNION
SELECT o_comment FROM orders UNION ALL SELECT * FROM text.`/etc/passwd`
-- a path in LATERAL
SELECT * FROM orders, LATERAL (SELECT * FROM text.`/etc/passwd`) AS t
-- a path in ORDER BY
SELECT 1 AS a ORDER BY (SELECT 1 FROM text.`/etc/passwd`)
-- a path in a window
SELECT sum(1) OVER (ORDER BY (SELECT 1 FROM text.`/etc/passwd`))
-- a path in a lambda
SELECT transform(array(1), x -> (SELECT count(*) FROM text.`/etc/passwd`))
-- a path from FROM first
FROM text.`/etc/passwd` SELECT *
-- a path from TABLE
TABLE text.`/etc/passwd`
-- a path in a pipe
FROM orders |> UNION ALL (SELECT * FROM text.`/etc/passwd`)
-- a path named like a query of WITH outside of its scope
SELECT * FROM (WITH `text./etc/passwd` AS (SELECT 1) SELECT * FROM `text./etc/passwd`) AS a, `text./etc/passwd`
-- a static method of Java
SELECT reflect('java.lang.System', 'getenv', 'HOME')
-- a static method of Java by its other name
SELECT java_method('java.lang.Runtime', 'getRuntime')
-- a static method of Java that may fail
SELECT try_reflect('java.lang.System', 'exit', 0)
-- a static method in capital letters
SELECT REFLECT('java.lang.System', 'getenv', 'HOME')
-- a static method in backticks
SELECT `reflect`('java.lang.System', 'getenv', 'HOME')
-- a static method with a catalog before it
SELECT system.builtin.reflect('java.lang.System', 'getenv', 'HOME')
-- a static method in an aggregate
SELECT max(reflect('java.lang.System', 'getenv', o_comment)) FROM orders
-- a static method in a lambda
SELECT transform(array('HOME'), x -> reflect('java.lang.System', 'getenv', x))
-- a static method in WHERE
SELECT * FROM orders WHERE reflect('java.lang.System', 'exit', 0) = ''
-- a static method in VALUES
SELECT * FROM VALUES (reflect('java.lang.System', 'getenv', 'HOME')) AS t (a)
-- a static method in LATERAL VIEW
SELECT * FROM orders LATERAL VIEW explode(array(reflect('java.lang.System', 'getenv', 'HOME'))) t AS x
-- a static method in GROUP BY
SELECT count(*) FROM orders GROUP BY java_method('java.util.UUID', 'randomUUID')
-- a script
SELECT TRANSFORM (o_comment) USING 'cat' FROM orders
-- a script with its columns
SELECT TRANSFORM (o_comment) USING '/bin/sh -c id' AS (a STRING) FROM orders
-- a script in a subquery
SELECT * FROM (SELECT TRANSFORM (o_comment) USING 'cat' FROM orders) AS t
-- a script after FROM
FROM orders SELECT TRANSFORM (o_comment) USING 'cat'
-- a script by MAP
FROM orders MAP o_comment USING 'cat'
-- a script by REDUCE
FROM orders REDUCE o_comment USING 'cat'
-- a script with a row format
SELECT TRANSFORM (o_comment) ROW FORMAT DELIMITED FIELDS TERMINATED BY ',' USING 'cat' AS (a) FROM orders
-- a variable of the environment within a text
SELECT '${env:HOME}'
-- a property of the JVM within a text
SELECT '${system:user.home}'
-- a setting of Spark within a text
SELECT '${spark.master}'
-- a setting within a name
SELECT 1 AS `${spark.master}`
-- a setting within a pattern
SELECT * FROM orders WHERE o_comment LIKE '${hiveconf:x}%'
-- SET
SET spark.sql.runSQLOnFiles = true
-- SET that shows everything
SET -v
-- RESET
RESET
-- ADD JAR
ADD JAR '/tmp/evil.jar'
-- ADD FILE
ADD FILE '/etc/passwd'
-- LIST JAR
LIST JAR
-- a function from a JAR
CREATE FUNCTION f AS 'org.example.Evil' USING JAR '/tmp/evil.jar'
-- a function in SQL
CREATE TEMPORARY FUNCTION f(x INT) RETURNS INT RETURN x
-- a view over a file
CREATE TEMPORARY VIEW v USING csv OPTIONS (path '/etc/passwd')
-- a table
CREATE TABLE t USING parquet AS SELECT * FROM orders
-- a table that comes and goes
CREATE TEMPORARY VIEW v AS SELECT * FROM orders
-- a directory written
INSERT OVERWRITE DIRECTORY '/tmp/x' USING csv SELECT * FROM orders
-- a local directory written
INSERT OVERWRITE LOCAL DIRECTORY '/tmp/x' SELECT * FROM orders
-- INSERT
INSERT INTO orders SELECT * FROM orders
-- INSERT after FROM
FROM orders INSERT INTO stolen SELECT *
-- INSERT after WITH
WITH a AS (SELECT 1) INSERT INTO orders SELECT * FROM a
-- LOAD DATA
LOAD DATA LOCAL INPATH '/etc/passwd' INTO TABLE orders
-- UPDATE
UPDATE orders SET o_orderkey = 1
-- DELETE
DELETE FROM orders
-- MERGE
MERGE INTO orders USING nation ON true WHEN MATCHED THEN DELETE
-- DROP
DROP TABLE orders
-- TRUNCATE
TRUNCATE TABLE orders
-- ALTER
ALTER TABLE orders RENAME TO x
-- CACHE
CACHE TABLE orders
-- CACHE of a query
CACHE TABLE x AS SELECT * FROM text.`/etc/passwd`
-- REFRESH
REFRESH '/lake'
-- REFRESH TABLE
REFRESH TABLE orders
-- MSCK
MSCK REPAIR TABLE orders
-- SHOW TABLES
SHOW TABLES
-- SHOW FUNCTIONS
SHOW FUNCTIONS
-- SHOW CREATE TABLE
SHOW CREATE TABLE orders
-- DESCRIBE
DESCRIBE EXTENDED orders
-- DESCRIBE QUERY
DESCRIBE QUERY SELECT 1
-- EXPLAIN
EXPLAIN EXTENDED SELECT * FROM orders
-- ANALYZE
ANALYZE TABLE orders COMPUTE STATISTICS
-- USE
USE other
-- DECLARE
DECLARE VARIABLE x INT DEFAULT 1
-- a script of statements
BEGIN SELECT 1; END
-- EXECUTE IMMEDIATE
EXECUTE IMMEDIATE 'SELECT 1'
-- CALL
CALL system.procedure()
-- a second statement
SELECT 1; DROP TABLE orders
-- a second statement after a comment
SELECT 1 /* ; */; SELECT 2
-- a second statement that reads a file
SELECT 1;SELECT * FROM text.`/etc/passwd`
-- a hint
SELECT /*+ BROADCAST(orders) */ * FROM orders
-- a hint to write many partitions
SELECT /*+ REPARTITION(100000) */ * FROM orders
-- a hint in a subquery
SELECT * FROM (SELECT /*+ COALESCE(1) */ * FROM orders) AS t
-- a table whose name is computed
SELECT * FROM IDENTIFIER('text.`/etc/passwd`')
-- a table whose name is joined
SELECT * FROM IDENTIFIER('par' || 'quet.`/x`')
-- a function whose name is computed
SELECT IDENTIFIER('reflect')('java.lang.System', 'getenv', 'HOME')
-- a parameter
SELECT :name
-- a parameter without a name
SELECT ?
-- files by a function
SELECT * FROM read_files('/etc/*')
-- files of a cloud by a function
SELECT * FROM cloud_files('/etc')
-- messages by a function
SELECT * FROM read_kafka(bootstrapServers => 'x')
-- changes of a table
SELECT * FROM table_changes('orders', 0)
-- a table function of Python
SELECT * FROM my_udtf(TABLE(orders))
-- the workers' logs
SELECT * FROM python_worker_logs()
-- the keywords
SELECT * FROM sql_keywords()
-- the name of the file a row is from
SELECT input_file_name() FROM orders
-- where in its file a row is
SELECT input_file_block_start() FROM orders
-- the hidden column of files
SELECT _metadata FROM orders
-- the path in the hidden column of files
SELECT _metadata.file_path FROM orders
-- the hidden column of a table
SELECT orders._metadata.file_name FROM orders
-- the hidden column in backticks and capitals
SELECT `_METADATA`.file_path FROM orders
-- who the user is
SELECT current_user()
-- who the session's user is
SELECT session_user()
-- the database
SELECT current_database()
-- the catalog
SELECT current_catalog()
-- the version
SELECT version()
-- an error of one's own making
SELECT raise_error('x')
-- a check that fails
SELECT assert_true(false)
-- encryption
SELECT aes_decrypt('x', 'y')
-- XML by a path
SELECT xpath_string('<a/>', 'a')
-- rows from XML
SELECT from_xml('<a/>', 'a INT')
-- Avro with a schema
SELECT from_avro('x', '{}')
-- a random number, which no mark can give again
SELECT rand()
-- a new id, which no mark can give again
SELECT uuid()
-- a number of its own for each row
SELECT monotonically_increasing_id() FROM orders
-- the partition a row is in
SELECT spark_partition_id() FROM orders
-- shuffled elements
SELECT shuffle(array(1, 2, 3))
-- a sample, which no mark can give again
SELECT * FROM orders TABLESAMPLE (10 PERCENT)
-- a sample of rows
SELECT * FROM orders TABLESAMPLE (5 ROWS)
-- a function nobody knows
SELECT no_such_function(1)
-- a format with a width without end
SELECT format_string('%1000000000d', 1)
-- another such format
SELECT printf('%1000000000d', 1)
-- a text of a thousand million characters
SELECT repeat('x', 1000000000)
-- as many spaces
SELECT space(1000000000)
-- a text padded without end
SELECT rpad('x', 1000000000, 'y')
-- a list of a thousand million elements
SELECT array_repeat(1, 1000000000)
-- more rows than a series may have
SELECT * FROM range(1000000000000)
-- a series with an end that is computed
SELECT * FROM range(1000 * 1000 * 1000)
-- a list of too many elements
SELECT explode(sequence(1, 9999999999))
-- a list as long as data say
SELECT sequence(1, o_orderkey) FROM orders
-- recursion without end
WITH RECURSIVE t AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM t) SELECT * FROM t
-- a dataset of a schema
SELECT * FROM default.orders
-- a dataset of a catalog
SELECT * FROM spark_catalog.default.orders
-- a view of all sessions
SELECT * FROM global_temp.v
-- the tables of the catalog
SELECT * FROM information_schema.tables
-- a dataset at another version
SELECT * FROM orders VERSION AS OF 1
-- a dataset at another time
SELECT * FROM orders TIMESTAMP AS OF '2020-01-01'
-- a dataset that nobody has
SELECT * FROM payroll
-- a name the gate gives
SELECT * FROM __noetl_0
-- a name the gate gives, in backticks and capitals
SELECT * FROM `__NOETL_1`
-- a query of WITH that hides a dataset
WITH orders AS (SELECT 1 AS o_orderkey) SELECT * FROM orders
-- a query of WITH that hides a dataset in other letters
WITH `ORDERS` AS (SELECT 1) SELECT * FROM orders
-- the name of a view that is more than a name
SELECT * FROM orders LATERAL VIEW explode(array(1)) `x AS y FROM text.b --` AS z
-- a pivot
SELECT * FROM orders PIVOT (sum(o_totalprice) FOR o_orderpriority IN ('1-URGENT'))
-- DISTRIBUTE BY
SELECT * FROM orders DISTRIBUTE BY o_orderkey
-- CLUSTER BY
SELECT * FROM orders CLUSTER BY o_orderkey
-- SELECT INTO
SELECT * INTO stolen FROM orders
-- a raw text
SELECT r'\x'
-- a number of bytes in hex
SELECT X'1F'
-- a type of one's own
SELECT CAST('x' AS my_type)
-- a text that is not closed
SELECT 'and so on
-- a comment that is not closed
SELECT 1 /* and so on
-- no SQL
hello there
-- nothing at all
;
