-- What happens to a schedule or a slot belongs to no run that would have to end before its month may go.
CREATE OR REPLACE FUNCTION noetl.drop_event_partition(p_partition text, p_ending text[]) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '2s' AS $$
DECLARE
    dropped  bigint;
    archived bigint;
    open_id  bigint;
BEGIN
    IF p_partition !~ '^event_[0-9]{4}_[0-9]{2}$' OR to_regclass('noetl.' || quote_ident(p_partition)) IS NULL THEN
        RAISE undefined_table USING MESSAGE = format('there is no droppable partition %s', p_partition);
    END IF;
    -- No append may slip in between the checks and the drop.
    EXECUTE format('LOCK TABLE noetl.%I IN SHARE MODE', p_partition);
    EXECUTE format('SELECT e.execution_id FROM noetl.%1$I AS e '
                   'GROUP BY e.tenant_id, e.organization_id, e.execution_id '
                   'HAVING bool_or(starts_with(e.stream_id, ''execution/'')) AND NOT bool_or(e.event_type = ANY ($1)) '
                   'LIMIT 1', p_partition) INTO open_id USING p_ending;
    IF open_id IS NOT NULL THEN
        RAISE object_in_use USING MESSAGE = format('execution %s in %s has not ended', open_id, p_partition);
    END IF;
    EXECUTE format('SELECT count(*) FROM noetl.%I', p_partition) INTO dropped;
    SELECT coalesce(sum(a.events), 0) INTO archived FROM noetl.event_archive AS a
    WHERE a.partition = p_partition AND a.removed_at IS NULL;
    IF dropped <> archived THEN
        RAISE object_in_use USING
            MESSAGE = format('%s holds %s events, of which %s are archived', p_partition, dropped, archived);
    END IF;
    EXECUTE format('SELECT k.execution_id FROM noetl.idempotency_key AS k WHERE k.expires_at > now() '
                   'AND k.execution_id IN (SELECT e.execution_id FROM noetl.%I AS e) LIMIT 1', p_partition)
        INTO open_id;
    IF open_id IS NOT NULL THEN
        RAISE object_in_use USING
            MESSAGE = format('idempotency keys of execution %s in %s are still valid', open_id, p_partition);
    END IF;
    EXECUTE format('ALTER TABLE noetl.event DETACH PARTITION noetl.%I', p_partition);
    EXECUTE format('DROP TABLE noetl.%I', p_partition);
    UPDATE noetl.event_archive AS a SET dropped_at = clock_timestamp() WHERE a.partition = p_partition;
    RETURN dropped;
END
$$;
COMMENT ON FUNCTION noetl.drop_event_partition IS
    'Drops a partition whose executions have all ended and whose events are all archived; refuses any other.';
REVOKE ALL ON FUNCTION noetl.drop_event_partition FROM PUBLIC;
GRANT EXECUTE ON FUNCTION noetl.drop_event_partition TO noetl_retention;
