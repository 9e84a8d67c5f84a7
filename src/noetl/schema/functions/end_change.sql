-- To the ledger only once nothing waits for the materializer; to the stream, what waits goes on waiting.
CREATE OR REPLACE FUNCTION noetl.end_change(p_token uuid, p_mode text) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    way noetl.write_path;
BEGIN
    PERFORM pg_advisory_xact_lock(noetl.write_path_lock());
    SELECT * INTO way FROM noetl.write_path AS w FOR UPDATE;
    IF way.lease_token IS DISTINCT FROM p_token
       OR (p_mode = 'ledger' AND EXISTS (SELECT FROM noetl.shard_outbox AS o WHERE noetl.waiting(o.shard))) THEN
        RETURN way.mode;
    END IF;
    IF p_mode = 'stream' THEN
        UPDATE noetl.shard_outbox AS o SET last_ingest = greatest(o.last_ingest, s.last_ingest)
        FROM noetl.shard AS s WHERE s.shard = o.shard;
    END IF;
    UPDATE noetl.write_path SET mode = p_mode, changed_at = clock_timestamp(), came_from = NULL, wanted = NULL,
        holder = NULL, lease_token = NULL, lease_until = NULL;
    RETURN p_mode;
END
$$;
COMMENT ON FUNCTION noetl.end_change IS
    'Ends a change of the write path for its holder, and returns how events go now.';
REVOKE ALL ON FUNCTION noetl.end_change FROM PUBLIC;
GRANT EXECUTE ON FUNCTION noetl.end_change TO noetl_runtime, noetl_materializer;
