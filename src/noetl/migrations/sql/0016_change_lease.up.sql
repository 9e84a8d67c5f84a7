-- A change of the write path belongs to a holder with a lease, so that one whose holder died is ended by another process.
ALTER TABLE noetl.write_path
    ADD COLUMN came_from   text CHECK (came_from IN ('ledger', 'stream')),
    ADD COLUMN wanted      text CHECK (wanted IN ('ledger', 'stream')),
    ADD COLUMN holder      text,
    ADD COLUMN lease_token uuid,
    ADD COLUMN lease_until timestamptz;
-- One that was under way in the revision before names nobody: its lease is over, and whoever looks next takes it.
UPDATE noetl.write_path SET came_from = 'stream', wanted = 'ledger', holder = 'unknown', lease_token = gen_random_uuid(),
    lease_until = '-infinity' WHERE mode = 'draining';
ALTER TABLE noetl.write_path ADD CONSTRAINT write_path_held
    CHECK ((mode = 'draining') = (num_nulls(came_from, wanted, holder, lease_token, lease_until) = 0)
       AND (mode = 'draining' OR num_nonnulls(came_from, wanted, holder, lease_token, lease_until) = 0));
COMMENT ON COLUMN noetl.write_path.came_from IS 'During a change: the way before it, to which it is put back if it fails.';
COMMENT ON COLUMN noetl.write_path.wanted IS 'During a change: the way to come.';
COMMENT ON COLUMN noetl.write_path.lease_token IS 'During a change: what its holder ends it with.';

DROP FUNCTION noetl.change_write_path_v1;

-- Stops all appends and gives the change to a holder; without `p_wanted`, only one whose holder is silent is taken over.
-- A change that another one holds is left to it: no token comes back then.
CREATE FUNCTION noetl.begin_change_v1(p_wanted text, p_holder text, p_lease interval)
    RETURNS TABLE (mode text, came_from text, wanted text, holder text, lease_token uuid)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    way noetl.write_path;
BEGIN
    PERFORM pg_advisory_xact_lock(noetl.write_path_lock_v1());
    SELECT * INTO way FROM noetl.write_path AS w FOR UPDATE;
    IF way.mode = 'draining' AND way.lease_until > clock_timestamp() THEN
        RETURN QUERY SELECT way.mode, way.came_from, way.wanted, way.holder, NULL::uuid;
    ELSIF way.mode = p_wanted OR (way.mode <> 'draining' AND p_wanted IS NULL) THEN
        RETURN QUERY SELECT way.mode, NULL::text, NULL::text, NULL::text, NULL::uuid;
    ELSE
        RETURN QUERY UPDATE noetl.write_path AS w SET mode = 'draining', changed_at = clock_timestamp(),
            came_from = coalesce(way.came_from, way.mode), wanted = coalesce(p_wanted, way.wanted), holder = p_holder,
            lease_token = gen_random_uuid(), lease_until = clock_timestamp() + p_lease
        RETURNING w.mode, w.came_from, w.wanted, w.holder, w.lease_token;
    END IF;
END
$$;
COMMENT ON FUNCTION noetl.begin_change_v1 IS 'Begins a change of the write path, or takes over one whose holder is silent.';

CREATE FUNCTION noetl.renew_change_v1(p_token uuid, p_lease interval) RETURNS boolean
    LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    WITH renewed AS (
        UPDATE noetl.write_path AS w SET lease_until = clock_timestamp() + p_lease WHERE w.lease_token = p_token RETURNING 1)
    SELECT EXISTS (SELECT FROM renewed)
$$;
COMMENT ON FUNCTION noetl.renew_change_v1 IS 'Renews the lease on a change of the write path, and tells whether it is held.';

-- To the ledger only once nothing waits for the materializer; to the stream, what waits goes on waiting.
CREATE FUNCTION noetl.end_change_v1(p_token uuid, p_mode text) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    way noetl.write_path;
BEGIN
    PERFORM pg_advisory_xact_lock(noetl.write_path_lock_v1());
    SELECT * INTO way FROM noetl.write_path AS w FOR UPDATE;
    IF way.lease_token IS DISTINCT FROM p_token
       OR (p_mode = 'ledger' AND EXISTS (SELECT FROM noetl.shard_outbox AS o WHERE noetl.waiting_v1(o.shard))) THEN
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
COMMENT ON FUNCTION noetl.end_change_v1 IS 'Ends a change of the write path for its holder, and returns how events go now.';
REVOKE ALL ON FUNCTION noetl.begin_change_v1, noetl.renew_change_v1, noetl.end_change_v1 FROM PUBLIC;
GRANT EXECUTE ON FUNCTION noetl.begin_change_v1, noetl.renew_change_v1, noetl.end_change_v1
    TO noetl_runtime, noetl_materializer;
