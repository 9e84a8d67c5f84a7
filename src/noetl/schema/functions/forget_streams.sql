CREATE OR REPLACE FUNCTION noetl.forget_streams(p_partition text, p_limit integer) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    forgotten bigint;
BEGIN
    IF to_regclass('noetl.' || quote_ident(p_partition)) IS NOT NULL OR NOT EXISTS (
        SELECT FROM noetl.event_archive AS a WHERE a.partition = p_partition AND a.dropped_at IS NOT NULL
    ) THEN
        RAISE object_in_use USING MESSAGE = format('%s is not a dropped partition', p_partition);
    END IF;
    DELETE FROM noetl.stream AS s USING (
        SELECT d.tenant_id, d.organization_id, d.stream_id FROM noetl.stream AS d
        JOIN (SELECT min(a.first_execution_id) AS first, max(a.last_execution_id) AS last
              FROM noetl.event_archive AS a WHERE a.partition = p_partition) AS held
          ON d.execution_id BETWEEN held.first AND held.last
        LIMIT p_limit
    ) AS old
    WHERE s.tenant_id = old.tenant_id AND s.organization_id = old.organization_id AND s.stream_id = old.stream_id;
    GET DIAGNOSTICS forgotten = ROW_COUNT;
    RETURN forgotten;
END
$$;
COMMENT ON FUNCTION noetl.forget_streams IS
    'Deletes the heads of streams whose executions were dropped, some at a time.';
REVOKE ALL ON FUNCTION noetl.forget_streams FROM PUBLIC;
GRANT EXECUTE ON FUNCTION noetl.forget_streams TO noetl_retention;
