-- Ordinary analytics over TPC-H-like tables that must pass the gate and run: on both engines unless a block says otherwise.
-- A block begins with `-- name`, perhaps with `(duckdb)` or `(spark)`, and ends with a semicolon.

-- pricing summary
SELECT l_returnflag, l_linestatus, sum(l_quantity) AS sum_qty, sum(l_extendedprice) AS sum_base,
       sum(l_extendedprice * (1 - l_discount)) AS sum_disc, avg(l_quantity) AS avg_qty, count(*) AS orders
FROM lineitem WHERE l_shipdate <= DATE '1998-12-01' - INTERVAL '90' DAY
GROUP BY l_returnflag, l_linestatus ORDER BY l_returnflag, l_linestatus;
-- minimum cost supplier
SELECT s.s_name, p.p_partkey FROM part AS p JOIN partsupp AS ps ON p.p_partkey = ps.ps_partkey
JOIN supplier AS s ON s.s_suppkey = ps.ps_suppkey
WHERE p.p_size = 15 AND p.p_type LIKE '%BRASS' AND ps.ps_supplycost = (
    SELECT min(ps2.ps_supplycost) FROM partsupp AS ps2 WHERE ps2.ps_partkey = p.p_partkey)
ORDER BY s.s_name LIMIT 100;
-- shipping priority
SELECT l_orderkey, sum(l_extendedprice * (1 - l_discount)) AS revenue, o_orderdate FROM customer, orders, lineitem
WHERE c_mktsegment = 'BUILDING' AND c_custkey = o_custkey AND l_orderkey = o_orderkey
  AND o_orderdate < DATE '1995-03-15' AND l_shipdate > DATE '1995-03-15'
GROUP BY l_orderkey, o_orderdate ORDER BY revenue DESC, o_orderdate LIMIT 10;
-- order priority checking
SELECT o_orderpriority, count(*) AS order_count FROM orders
WHERE o_orderdate >= DATE '1993-07-01' AND o_orderdate < DATE '1993-07-01' + INTERVAL '3' MONTH
  AND EXISTS (SELECT * FROM lineitem WHERE l_orderkey = o_orderkey AND l_commitdate < l_receiptdate)
GROUP BY o_orderpriority ORDER BY o_orderpriority;
-- local supplier volume
SELECT n_name, sum(l_extendedprice * (1 - l_discount)) AS revenue
FROM customer, orders, lineitem, supplier, nation, region
WHERE c_custkey = o_custkey AND l_orderkey = o_orderkey AND l_suppkey = s_suppkey AND c_nationkey = s_nationkey
  AND s_nationkey = n_nationkey AND n_regionkey = r_regionkey AND r_name = 'ASIA'
GROUP BY n_name ORDER BY revenue DESC;
-- forecasting revenue change
SELECT sum(l_extendedprice * l_discount) AS revenue FROM lineitem
WHERE l_shipdate >= DATE '1994-01-01' AND l_discount BETWEEN 0.05 AND 0.07 AND l_quantity < 24;
-- volume shipping
SELECT supp_nation, l_year, sum(volume) AS revenue FROM (
    SELECT n1.n_name AS supp_nation, extract(year FROM l_shipdate) AS l_year, l_extendedprice * (1 - l_discount) AS volume
    FROM supplier, lineitem, nation AS n1 WHERE s_suppkey = l_suppkey AND s_nationkey = n1.n_nationkey) AS shipping
GROUP BY supp_nation, l_year ORDER BY supp_nation, l_year;
-- national market share
SELECT o_year, sum(CASE WHEN nation = 'BRAZIL' THEN volume ELSE 0 END) / sum(volume) AS mkt_share FROM (
    SELECT extract(year FROM o_orderdate) AS o_year, l_extendedprice * (1 - l_discount) AS volume, n_name AS nation
    FROM lineitem JOIN orders ON l_orderkey = o_orderkey JOIN supplier ON s_suppkey = l_suppkey
    JOIN nation ON s_nationkey = n_nationkey) AS all_nations
GROUP BY o_year ORDER BY o_year;
-- returned item reporting
SELECT c_custkey, c_name, sum(l_extendedprice * (1 - l_discount)) AS revenue, n_name
FROM customer JOIN orders ON c_custkey = o_custkey JOIN lineitem ON l_orderkey = o_orderkey
JOIN nation ON c_nationkey = n_nationkey WHERE l_returnflag = 'R' GROUP BY c_custkey, c_name, n_name
ORDER BY revenue DESC LIMIT 20;
-- important stock
SELECT ps_partkey, sum(ps_supplycost * ps_availqty) AS worth FROM partsupp GROUP BY ps_partkey
HAVING sum(ps_supplycost * ps_availqty) > (SELECT sum(ps_supplycost * ps_availqty) * 0.0001 FROM partsupp)
ORDER BY worth DESC;
-- shipping modes
SELECT l_shipmode, sum(CASE WHEN o_orderpriority IN ('1-URGENT', '2-HIGH') THEN 1 ELSE 0 END) AS high_line_count
FROM orders, lineitem WHERE o_orderkey = l_orderkey AND l_shipmode IN ('MAIL', 'SHIP') GROUP BY l_shipmode;
-- customer distribution
SELECT c_count, count(*) AS custdist FROM (
    SELECT c_custkey, count(o_orderkey) AS c_count FROM customer LEFT OUTER JOIN orders
    ON c_custkey = o_custkey AND NOT o_comment LIKE '%special%requests%' GROUP BY c_custkey) AS c_orders
GROUP BY c_count ORDER BY custdist DESC, c_count DESC;
-- promotion effect
SELECT 100.00 * sum(CASE WHEN p_type LIKE 'PROMO%' THEN l_extendedprice * (1 - l_discount) ELSE 0 END)
       / sum(l_extendedprice * (1 - l_discount)) AS promo_revenue
FROM lineitem, part WHERE l_partkey = p_partkey;
-- top supplier
WITH revenue AS (SELECT l_suppkey AS supplier_no, sum(l_extendedprice) AS total FROM lineitem GROUP BY l_suppkey)
SELECT s_suppkey, s_name, total FROM supplier, revenue
WHERE s_suppkey = supplier_no AND total = (SELECT max(total) FROM revenue) ORDER BY s_suppkey;
-- parts supplier relationship
SELECT p_brand, p_type, count(DISTINCT ps_suppkey) AS supplier_cnt FROM partsupp, part
WHERE p_partkey = ps_partkey AND p_brand <> 'Brand#45' AND p_size IN (49, 14, 23) AND ps_suppkey NOT IN (
    SELECT s_suppkey FROM supplier WHERE s_name LIKE '%Complaints%') GROUP BY p_brand, p_type;
-- small quantity orders
SELECT sum(l_extendedprice) / 7.0 AS avg_yearly FROM lineitem, part WHERE p_partkey = l_partkey AND l_quantity < (
    SELECT 0.2 * avg(l2.l_quantity) FROM lineitem AS l2 WHERE l2.l_partkey = p_partkey);
-- large volume customers
SELECT c_name, o_orderkey, sum(l_quantity) AS quantity FROM customer, orders, lineitem WHERE o_orderkey IN (
    SELECT l_orderkey FROM lineitem GROUP BY l_orderkey HAVING sum(l_quantity) > 30)
  AND c_custkey = o_custkey AND o_orderkey = l_orderkey GROUP BY c_name, o_orderkey ORDER BY quantity DESC LIMIT 100;
-- global sales opportunity
SELECT substring(c_phone, 1, 2) AS code, count(*) AS numcust, sum(c_acctbal) AS totacctbal FROM customer
WHERE substring(c_phone, 1, 2) IN ('18', '19', '31') AND NOT EXISTS (
    SELECT * FROM orders WHERE o_custkey = c_custkey) GROUP BY code ORDER BY code;
-- running total
SELECT o_orderkey, sum(o_totalprice) OVER (PARTITION BY o_custkey ORDER BY o_orderdate, o_orderkey
    ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS running FROM orders;
-- moving average by range of rows
SELECT o_orderkey, avg(o_totalprice) OVER (ORDER BY o_orderkey ROWS BETWEEN 2 PRECEDING AND 2 FOLLOWING) AS smooth FROM orders;
-- ranks
SELECT o_orderkey, row_number() OVER w AS n, rank() OVER w AS r, dense_rank() OVER w AS d, ntile(4) OVER w AS q,
       percent_rank() OVER w AS p, cume_dist() OVER w AS c FROM orders WINDOW w AS (ORDER BY o_totalprice DESC);
-- lag and lead
SELECT o_orderkey, lag(o_totalprice) OVER (ORDER BY o_orderkey) AS before, lead(o_totalprice, 2, 0.0)
    OVER (ORDER BY o_orderkey) AS later, first_value(o_totalprice) OVER (ORDER BY o_orderkey) AS f FROM orders;
-- newest order of each customer
SELECT o_custkey, o_orderkey FROM orders QUALIFY row_number() OVER (PARTITION BY o_custkey ORDER BY o_orderdate DESC) = 1;
-- the same without QUALIFY
SELECT o_custkey, o_orderkey FROM (SELECT o_custkey, o_orderkey, row_number()
    OVER (PARTITION BY o_custkey ORDER BY o_orderdate DESC) AS n FROM orders) AS numbered WHERE n = 1;
-- rollup
SELECT n_regionkey, n_name, count(*) AS c, grouping(n_regionkey) AS g FROM nation GROUP BY ROLLUP (n_regionkey, n_name);
-- cube
SELECT p_brand, p_size, count(*) AS c FROM part GROUP BY CUBE (p_brand, p_size) ORDER BY c DESC;
-- grouping sets
SELECT p_brand, p_size, sum(p_retailprice) AS s FROM part GROUP BY GROUPING SETS ((p_brand), (p_size), ());
-- union
SELECT c_name AS name FROM customer UNION ALL SELECT s_name FROM supplier ORDER BY name LIMIT 5;
-- except and intersect
(SELECT c_nationkey AS k FROM customer EXCEPT SELECT s_nationkey FROM supplier) INTERSECT SELECT n_nationkey FROM nation;
-- full join
SELECT c.c_name, o.o_orderkey FROM customer AS c FULL OUTER JOIN orders AS o ON c.c_custkey = o.o_custkey;
-- semi and anti join
SELECT c_name FROM customer LEFT SEMI JOIN orders ON c_custkey = o_custkey
UNION ALL SELECT c_name FROM customer LEFT ANTI JOIN orders ON c_custkey = o_custkey; (spark)
-- using
SELECT * FROM (SELECT c_custkey AS k, c_name FROM customer) AS c JOIN (SELECT o_custkey AS k FROM orders) AS o USING (k);
-- cross join with numbers
SELECT n_name, v.x FROM nation CROSS JOIN (VALUES (1), (2)) AS v (x);
-- month by month
SELECT date_trunc('month', o_orderdate) AS month, count(*) AS orders FROM orders GROUP BY 1 ORDER BY 1;
-- parts of dates
SELECT year(o_orderdate) AS y, month(o_orderdate) AS m, day(o_orderdate) AS d, quarter(o_orderdate) AS q FROM orders;
-- dates apart (duckdb)
SELECT date_diff('day', o_orderdate, DATE '1998-01-01') AS days, o_orderdate + INTERVAL 1 MONTH AS later,
       strftime(o_orderdate, '%Y-%m') AS m, last_day(o_orderdate) AS l, dayname(o_orderdate) AS n FROM orders;
-- dates apart (spark)
SELECT datediff(DATE '1998-01-01', o_orderdate) AS days, add_months(o_orderdate, 1) AS later,
       date_format(o_orderdate, 'yyyy-MM') AS m, last_day(o_orderdate) AS l FROM orders;
-- text
SELECT upper(c_name) AS u, lower(c_name) AS l, length(c_name) AS n, trim(c_name) AS t, replace(c_name, '#', '-') AS r,
       concat(c_name, '/', c_phone) AS c, left(c_phone, 2) AS code, c_name || '!' AS bang FROM customer;
-- patterns (duckdb)
SELECT regexp_replace(c_phone, '[0-9]', '9', 'g') AS masked, regexp_extract(c_phone, '^([0-9]+)-', 1) AS code,
       string_split(c_phone, '-') AS parts FROM customer WHERE regexp_matches(c_name, '^Customer');
-- patterns (spark)
SELECT regexp_replace(c_phone, '[0-9]', '9') AS masked, regexp_extract(c_phone, '^([0-9]+)-', 1) AS code,
       split(c_phone, '-') AS parts FROM customer WHERE c_name RLIKE '^Customer';
-- numbers
SELECT abs(-c_acctbal) AS a, round(c_acctbal, 1) AS r, ceil(c_acctbal) AS c, floor(c_acctbal) AS f,
       sqrt(abs(c_acctbal)) AS s, power(2, 3) AS p, greatest(1, 2) AS g, least(1, 2) AS l, c_custkey % 2 AS odd FROM customer;
-- null handling
SELECT coalesce(o_orderkey, 0) AS k, nullif(c_acctbal, 0) AS n, c_comment IS NULL AS missing
FROM customer LEFT JOIN orders ON c_custkey = o_custkey;
-- statistics
SELECT stddev(l_quantity) AS sd, var_pop(l_quantity) AS vp, corr(l_quantity, l_extendedprice) AS c,
       covar_pop(l_quantity, l_extendedprice) AS cov, min(l_quantity) AS lo, max(l_quantity) AS hi FROM lineitem;
-- percentiles (duckdb)
SELECT median(l_quantity) AS m, quantile_cont(l_quantity, 0.9) AS q, mode(l_shipmode) AS top,
       approx_count_distinct(l_orderkey) AS about, arg_max(l_orderkey, l_quantity) AS biggest FROM lineitem;
-- percentiles (spark)
SELECT percentile_approx(l_quantity, 0.9) AS q, approx_count_distinct(l_orderkey) AS about,
       max_by(l_orderkey, l_quantity) AS biggest FROM lineitem;
-- filtered aggregates
SELECT count(*) FILTER (WHERE l_quantity > 10) AS many, count(DISTINCT l_shipmode) AS modes FROM lineitem;
-- lists (duckdb)
SELECT c_nationkey, list(c_name ORDER BY c_name) AS names, string_agg(c_name, ', ' ORDER BY c_name) AS joined,
       list_transform(list(c_custkey), lambda x: x * 2) AS twice, len(list(c_name)) AS n FROM customer GROUP BY c_nationkey;
-- lists (spark)
SELECT c_nationkey, sort_array(collect_list(c_name)) AS names, array_join(collect_set(c_name), ', ') AS joined,
       transform(collect_list(c_custkey), x -> x * 2) AS twice, size(collect_list(c_name)) AS n
FROM customer GROUP BY c_nationkey;
-- unnested (duckdb)
SELECT n_name, u.x FROM nation, unnest([1, 2, n_regionkey]) AS u (x);
-- exploded (spark)
SELECT n_name, x FROM nation LATERAL VIEW explode(array(1, 2, n_regionkey)) numbers AS x;
-- a series of numbers (duckdb)
SELECT i, i * i AS square FROM range(1, 11) AS r (i) UNION ALL SELECT i, 0 FROM generate_series(1, 3) AS g (i);
-- a series of numbers (spark)
SELECT id, id * id AS square FROM range(1, 11);
-- a calendar (duckdb)
SELECT d.day, count(o_orderkey) AS orders
FROM unnest(generate_series(DATE '1995-01-01', DATE '1995-01-31', INTERVAL 1 DAY)) AS d (day)
LEFT JOIN orders ON o_orderdate = d.day GROUP BY d.day ORDER BY d.day;
-- a calendar (spark)
SELECT d.day, count(o_orderkey) AS orders
FROM (SELECT explode(sequence(DATE '1995-01-01', DATE '1995-01-31', INTERVAL 1 DAY)) AS day) AS d
LEFT JOIN orders ON o_orderdate = d.day GROUP BY d.day ORDER BY d.day;
-- structs and maps (duckdb)
SELECT {'name': n_name, 'key': n_nationkey} AS both, struct_pack(a := 1).a AS one, map {'x': 1}['x'] AS m FROM nation;
-- structs and maps (spark)
SELECT named_struct('name', n_name, 'key', n_nationkey) AS both, map('x', 1)['x'] AS m FROM nation;
-- JSON (duckdb)
SELECT json_extract_string(j, '$.a') AS a, j ->> '$.b' AS b, to_json({'k': 1}) AS made FROM (SELECT '{"a": 1, "b": 2}' AS j) AS t;
-- JSON (spark)
SELECT get_json_object(j, '$.a') AS a, to_json(named_struct('k', 1)) AS made FROM (SELECT '{"a": 1, "b": 2}' AS j) AS t;
-- casts
SELECT CAST(c_custkey AS VARCHAR(20)) AS t, CAST('1.5' AS DECIMAL(10, 2)) AS d, CAST('2020-01-01' AS DATE) AS day FROM customer;
-- casts with colons (duckdb)
SELECT c_custkey::VARCHAR AS t, TRY_CAST('x' AS INTEGER) AS nothing, '2020-01-01'::DATE AS day FROM customer;
-- star without columns (duckdb)
SELECT * EXCLUDE (c_comment) REPLACE (round(c_acctbal) AS c_acctbal) FROM customer;
-- all columns of one table
SELECT o.*, c.c_name FROM orders AS o JOIN customer AS c ON o.o_custkey = c.c_custkey;
-- from first (duckdb)
FROM nation SELECT n_name WHERE n_regionkey = 1;
-- group by all (duckdb)
SELECT n_regionkey, count(*) AS c FROM nation GROUP BY ALL ORDER BY ALL;
-- lateral subquery
SELECT c_name, last_order.o_orderkey FROM customer, LATERAL (
    SELECT o_orderkey FROM orders WHERE o_custkey = c_custkey ORDER BY o_orderdate DESC LIMIT 1) AS last_order;
-- as of a time (duckdb)
SELECT o.o_orderkey, l.l_quantity FROM orders AS o ASOF JOIN lineitem AS l ON o.o_orderdate >= l.l_shipdate;
-- distinct on (duckdb)
SELECT DISTINCT ON (o_custkey) o_custkey, o_orderkey FROM orders ORDER BY o_custkey, o_orderdate DESC;
-- names with spaces
SELECT "order key" FROM (SELECT o_orderkey AS "order key" FROM orders) AS "my orders"; (duckdb)
-- names with spaces in backticks (spark)
SELECT `order key` FROM (SELECT o_orderkey AS `order key` FROM orders) AS `my orders`;
-- quotes in texts
SELECT 'it''s' AS a, '"quoted"' AS b, 'semi;colon -- no comment /* at all */' AS c, '\n' AS d; (duckdb)
-- two WITHs, one of the name of the other's column
WITH a AS (SELECT n_regionkey AS b FROM nation), b AS (SELECT b FROM a WHERE b > 0) SELECT b.b FROM b WHERE b.b IN (SELECT b FROM a);
-- WITH inside a subquery
SELECT * FROM (WITH few AS (SELECT n_name FROM nation LIMIT 3) SELECT * FROM few) AS t;
-- a self join
SELECT a.n_name AS one, b.n_name AS other FROM nation AS a JOIN nation AS b ON a.n_regionkey = b.n_regionkey AND a.n_nationkey < b.n_nationkey;
-- values alone
VALUES (1, 'a'), (2, 'b'); (duckdb)
-- limit and offset
SELECT n_name FROM nation ORDER BY n_name LIMIT 5 OFFSET 2;
-- today
SELECT count(*) AS late FROM orders WHERE o_orderdate < current_date;
-- between columns
SELECT l_orderkey FROM lineitem WHERE l_shipdate BETWEEN l_commitdate AND l_receiptdate AND NOT (l_quantity > 40 OR l_discount < 0.01);
-- any and all (duckdb)
SELECT n_name FROM nation WHERE n_regionkey = ANY (SELECT r_regionkey FROM region) AND n_nationkey >= ALL (SELECT 0);
-- nothing read at all
SELECT 1 + 1 AS two;
