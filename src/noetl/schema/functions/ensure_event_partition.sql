CREATE OR REPLACE FUNCTION noetl.ensure_event_partition(p_execution_id bigint) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    name text := 'event_' || to_char(
        to_timestamp(((p_execution_id >> 22) + 1704067200000) / 1000.0) AT TIME ZONE 'UTC', 'YYYY_MM');
BEGIN
    IF p_execution_id >= 1099511627776 AND EXISTS (
        SELECT FROM noetl.event_archive AS a WHERE a.partition = name AND a.dropped_at IS NOT NULL
    ) THEN
        RAISE numeric_value_out_of_range USING MESSAGE = format(
            'execution %s belongs to %s, which was archived and dropped and takes no more events', p_execution_id, name);
    END IF;
    RETURN noetl.make_event_partition(p_execution_id);
END
$$;
COMMENT ON FUNCTION noetl.ensure_event_partition IS
    'Makes the partition that an execution id belongs to, unless it was dropped.';
REVOKE ALL ON FUNCTION noetl.ensure_event_partition FROM PUBLIC;
GRANT EXECUTE ON FUNCTION noetl.ensure_event_partition TO noetl_runtime, noetl_retention, noetl_materializer;
