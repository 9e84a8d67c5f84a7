CREATE OR REPLACE FUNCTION noetl.take_heads(
    p_waits boolean, p_shards smallint[], p_sizes bigint[], OUT bases bigint[], OUT taken_at timestamptz
)
    LANGUAGE plpgsql AS $$
DECLARE
    several boolean := cardinality(p_shards) > 1;
    head    record;
BEGIN
    -- Ascending, so that no two appends wait for each other. The time is one for the whole call and is taken once the
    -- heads are held, so it never runs backwards within a shard.
    bases := array_fill(0::bigint, ARRAY[16]);
    IF p_waits THEN
        IF several THEN
            PERFORM FROM noetl.shard_outbox AS h WHERE h.shard = ANY (p_shards) AND p_sizes[h.shard + 1] > 0
            ORDER BY h.shard FOR UPDATE;
        END IF;
        FOR head IN
            UPDATE noetl.shard_outbox AS h
            SET position = h.position + p_sizes[h.shard + 1], last_ingest = greatest(h.last_ingest, clock_timestamp())
            WHERE h.shard = ANY (p_shards) AND p_sizes[h.shard + 1] > 0
            RETURNING h.shard, h.position, h.last_ingest
        LOOP
            bases[head.shard + 1] := head.position - p_sizes[head.shard + 1];
            taken_at := greatest(taken_at, head.last_ingest);
        END LOOP;
        IF several THEN
            UPDATE noetl.shard_outbox AS h SET last_ingest = taken_at
            WHERE h.shard = ANY (p_shards) AND p_sizes[h.shard + 1] > 0 AND h.last_ingest < taken_at;
        END IF;
    ELSE
        IF several THEN
            PERFORM FROM noetl.shard AS h WHERE h.shard = ANY (p_shards) AND p_sizes[h.shard + 1] > 0
            ORDER BY h.shard FOR UPDATE;
        END IF;
        FOR head IN
            UPDATE noetl.shard AS h
            SET position = h.position + p_sizes[h.shard + 1], last_ingest = greatest(h.last_ingest, clock_timestamp())
            WHERE h.shard = ANY (p_shards) AND p_sizes[h.shard + 1] > 0
            RETURNING h.shard, h.position, h.last_ingest
        LOOP
            bases[head.shard + 1] := head.position - p_sizes[head.shard + 1];
            taken_at := greatest(taken_at, head.last_ingest);
        END LOOP;
        IF several THEN
            UPDATE noetl.shard AS h SET last_ingest = taken_at
            WHERE h.shard = ANY (p_shards) AND p_sizes[h.shard + 1] > 0 AND h.last_ingest < taken_at;
        END IF;
    END IF;
END
$$;
COMMENT ON FUNCTION noetl.take_heads IS
    'Locks the heads of shards and moves each on by its size; returns what stood before, both by shard number plus one.';
REVOKE ALL ON FUNCTION noetl.take_heads FROM PUBLIC;
