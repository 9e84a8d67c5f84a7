CREATE OR REPLACE FUNCTION noetl.ensure_event_partitions_ahead(p_months integer) RETURNS text[]
    LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT array_agg(noetl.ensure_event_partition(noetl.snowflake_at(now() + make_interval(months => ahead)))
                     ORDER BY ahead)
    FROM generate_series(0, least(greatest(p_months, 0), 120)) AS ahead
$$;
COMMENT ON FUNCTION noetl.ensure_event_partitions_ahead IS 'Makes this month''s partition and the next ones.';
REVOKE ALL ON FUNCTION noetl.ensure_event_partitions_ahead FROM PUBLIC;
GRANT EXECUTE ON FUNCTION noetl.ensure_event_partitions_ahead TO noetl_runtime, noetl_retention;
