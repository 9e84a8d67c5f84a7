"""Queries over two small tables that use what Spark SQL has; both ways to their lineage must agree on them."""

from __future__ import annotations

from typing import Final

INPUTS: Final = {
    "orders": {"o_id": "bigint", "c_id": "bigint", "amount": "double", "day": "date", "note": "string"},
    "customers": {"c_id": "bigint", "name": "string", "tags": "array<string>", "home": "struct<city:string,zip:int>"},
}

CORPUS: Final = {
    "star": "SELECT * FROM orders",
    "star_except": "SELECT * EXCEPT (note, day) FROM orders",
    "qualified_stars": "SELECT c.*, o.amount FROM orders o JOIN customers c ON o.c_id = c.c_id",
    "using": "SELECT * FROM orders JOIN customers USING (c_id)",
    "using_left": "SELECT c_id, name, amount FROM orders LEFT JOIN customers USING (c_id)",
    "using_right": "SELECT c_id, name, amount FROM orders RIGHT JOIN customers USING (c_id)",
    "using_full": "SELECT c_id, name FROM orders FULL OUTER JOIN customers USING (c_id)",
    "natural": "SELECT c_id, amount, name FROM orders NATURAL JOIN customers",
    "cross": "SELECT o.o_id, c.name FROM orders o CROSS JOIN customers c",
    "semi": "SELECT o_id FROM orders o LEFT SEMI JOIN customers c ON o.c_id = c.c_id AND c.name <> ''",
    "anti": "SELECT count(*) AS n FROM orders o LEFT ANTI JOIN customers c ON o.c_id = c.c_id",
    "self_join": "SELECT a.amount AS mine, b.amount AS theirs FROM orders a JOIN orders b ON a.o_id = b.c_id",
    "cte": "WITH big AS (SELECT * FROM orders WHERE amount > 10), n AS (SELECT c_id, count(*) AS n FROM big GROUP BY c_id)"
    " SELECT name, n FROM n JOIN customers USING (c_id)",
    "cte_hides_input": "WITH orders AS (SELECT o_id, amount * 2 AS amount FROM orders) SELECT amount FROM orders",
    "unused_cte": "WITH no AS (SELECT c_id FROM customers WHERE name = 'x') SELECT o_id FROM orders",
    "derived": "SELECT total FROM (SELECT c_id, sum(amount) AS total FROM orders GROUP BY c_id) t WHERE total > 5",
    "named_columns": "SELECT x, y FROM (SELECT o_id, amount FROM orders) AS t (x, y)",
    "lateral_alias": "SELECT amount * 2 AS double, double + o_id AS more FROM orders",
    "alias_in_group": "SELECT year(day) AS y, max(amount) AS m FROM orders GROUP BY y HAVING m > 1 ORDER BY y",
    "group_by_place": "SELECT note, c_id, min(day) AS first FROM orders GROUP BY 1, 2 ORDER BY 3",
    "group_by_all": "SELECT note, c_id, sum(amount) AS s FROM orders GROUP BY ALL",
    "rollup": "SELECT note, c_id, sum(amount) AS s FROM orders GROUP BY ROLLUP (note, c_id)",
    "filtered": "SELECT sum(amount) FILTER (WHERE note = 'a') AS s, count_if(amount > 1) AS n FROM orders",
    "count_distinct": "SELECT count(DISTINCT c_id) AS n, count(note) AS m, count(1) AS k FROM orders",
    "case": "SELECT CASE WHEN amount > 1 THEN note ELSE cast(o_id AS string) END AS c, coalesce(note, 'x') AS d FROM orders",
    "cast": "SELECT cast(amount AS decimal(10, 2)) AS a, o_id AS id FROM orders",
    "constants": "SELECT 1 AS one, 'x' AS x, current_date() AS today FROM orders",
    "window": "SELECT o_id, row_number() OVER (PARTITION BY c_id ORDER BY day) AS r,"
    " sum(amount) OVER (PARTITION BY c_id) AS s, lag(amount, 1) OVER (ORDER BY o_id) AS before FROM orders",
    "named_window": "SELECT rank() OVER w AS r, max(amount) OVER w AS m FROM orders WINDOW w AS (PARTITION BY c_id ORDER BY day)",
    "count_over": "SELECT count(*) OVER () AS n FROM orders",
    "union": "SELECT o_id, note FROM orders UNION ALL SELECT c_id, name FROM customers",
    "union_distinct": "SELECT note AS t FROM orders UNION SELECT upper(name) FROM customers ORDER BY t",
    "intersect": "SELECT c_id FROM orders INTERSECT SELECT c_id FROM customers",
    "except": "SELECT c_id FROM orders EXCEPT SELECT c_id FROM customers WHERE name = 'x'",
    "distinct": "SELECT DISTINCT c_id FROM orders ORDER BY c_id",
    "explode": "SELECT c_id, tag FROM customers LATERAL VIEW explode(tags) t AS tag WHERE tag <> 'x'",
    "posexplode": "SELECT c_id, place, tag FROM customers LATERAL VIEW OUTER posexplode(tags) t AS place, tag",
    "explode_selected": "SELECT c_id, explode(tags) AS tag FROM customers",
    "struct": "SELECT home.city, home.zip + 1 AS zip, tags[0] AS first FROM customers",
    "struct_of_table": "SELECT c.home.city AS city FROM customers c",
    "lambda": "SELECT transform(tags, t -> concat(t, name)) AS told, filter(tags, t -> t > 'a') AS some FROM customers",
    "scalar_subquery": "SELECT o_id, (SELECT max(name) FROM customers c WHERE c.c_id = o.c_id) AS who FROM orders o",
    "in_subquery": "SELECT o_id FROM orders WHERE c_id IN (SELECT c_id FROM customers WHERE name LIKE 'a%')",
    "exists": "SELECT o_id FROM orders o WHERE EXISTS (SELECT * FROM customers c WHERE c.c_id = o.c_id)",
    "exists_value": "SELECT o_id, EXISTS (SELECT 1 FROM customers c WHERE c.c_id = o.c_id) AS known FROM orders o",
    "lateral_join": "SELECT c.name, t.top FROM customers c,"
    " LATERAL (SELECT max(amount) AS top FROM orders o WHERE o.c_id = c.c_id) t",
    "recursive": "WITH RECURSIVE up (id, boss) AS (SELECT o_id, c_id FROM orders UNION ALL"
    " SELECT o.o_id, up.boss + 1 FROM orders o JOIN up ON o.c_id = up.id) SELECT id, boss FROM up",
    "cube": "SELECT note, grouping_id() AS g, sum(amount) AS s FROM orders GROUP BY CUBE (note, c_id)",
    "values": "SELECT o_id, v.label FROM orders JOIN VALUES (1, 'a'), (2, 'b') AS v (key, label) ON o_id = v.key",
    "range": "SELECT r.id, o.note FROM range(10) r JOIN orders o ON o.o_id = r.id",
    "aggregates": "SELECT collect_list(note) AS l, max_by(note, amount) AS m, percentile(amount, 0.5) AS p, first(day) AS f,"
    " any_value(c_id) AS a, stddev(amount) AS s FROM orders",
    "within_group": "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY amount) AS median FROM orders",
    "sort_by": "SELECT o_id FROM orders SORT BY amount",
    "parentheses": "SELECT (o.amount) AS a FROM (orders o JOIN customers c ON (o.c_id = c.c_id))",
    "order_by_expression": "SELECT o_id AS id FROM orders ORDER BY abs(amount) DESC LIMIT 3",
    "math_of_aggregates": "SELECT c_id, sum(amount) / count(*) AS mean FROM orders GROUP BY c_id",
    "nested_case": "SELECT sum(CASE WHEN name = 'x' THEN amount ELSE 0 END) AS s FROM orders JOIN customers USING (c_id)",
}
