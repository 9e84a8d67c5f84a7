CREATE OR REPLACE FUNCTION noetl.make_event_partition(p_execution_id bigint) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    month_start timestamptz := date_trunc(
        'month', to_timestamp(((p_execution_id >> 22) + 1704067200000) / 1000.0), 'UTC');
    month_end   timestamptz := ((month_start AT TIME ZONE 'UTC') + interval '1 month') AT TIME ZONE 'UTC';
    name        text := 'event_' || to_char(month_start AT TIME ZONE 'UTC', 'YYYY_MM');
BEGIN
    IF p_execution_id < 1099511627776 THEN
        RETURN 'event_root';
    END IF;
    IF to_regclass('noetl.' || quote_ident(name)) IS NOT NULL THEN
        RETURN name;
    END IF;
    PERFORM pg_advisory_xact_lock(hashtext('noetl.event partitions'));
    IF to_regclass('noetl.' || quote_ident(name)) IS NULL THEN
        -- Attaching a finished table does not stop writers; creating it as a partition would.
        EXECUTE format('CREATE TABLE noetl.%I (LIKE noetl.event INCLUDING ALL)', name);
        EXECUTE format('ALTER TABLE noetl.event ATTACH PARTITION noetl.%I FOR VALUES FROM (%s) TO (%s)', name,
                       greatest(noetl.snowflake_at(month_start), 1099511627776),
                       -- The last month of all ends with the ids themselves.
                       CASE WHEN noetl.snowflake_at(month_end) < 0 THEN 'MAXVALUE'
                            ELSE noetl.snowflake_at(month_end)::text END);
    END IF;
    RETURN name;
END
$$;
COMMENT ON FUNCTION noetl.make_event_partition IS 'Makes the partition that an execution id belongs to.';
REVOKE ALL ON FUNCTION noetl.make_event_partition FROM PUBLIC;
