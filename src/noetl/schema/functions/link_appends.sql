-- The arrays are by append; an append without a position was refused.
CREATE OR REPLACE FUNCTION noetl.link_appends(
    p_waits boolean, p_now timestamptz, appends noetl.new_append[], positions bigint[], versions bigint[]
) RETURNS void
    LANGUAGE plpgsql AS $$
BEGIN
    IF p_waits THEN
        INSERT INTO noetl.pending_leaf (shard, first_position, events, leaves)
        SELECT a.shard, min(positions[a.place]) + 1, sum(a.size),
               string_agg(a.leaves, ''::bytea ORDER BY positions[a.place])
        FROM unnest(appends) WITH ORDINALITY AS a (grp, slot, stream_id, shard, execution_id, expected_version, size, keys,
                                                   digest, event_ids, leaves, place)
        WHERE positions[a.place] IS NOT NULL GROUP BY a.shard;
        RETURN;
    END IF;
    -- As `noetl.add_link` does for one shard.
    INSERT INTO noetl.ledger_link (shard, first_position, events, ingest_times, versions, leaves, link)
    SELECT call.shard, call.first_position, call.events, timestamptz_send(p_now), call.runs, call.leaves, sha256(
        coalesce((SELECT known.link FROM noetl.ledger_link AS known
                  WHERE known.shard = call.shard AND known.first_position < call.first_position
                  ORDER BY known.first_position DESC LIMIT 1), decode(repeat('00', 32), 'hex'))
        || int8send(call.first_position) || int4send(call.events) || timestamptz_send(p_now) || call.runs || call.leaves)
    FROM (
        SELECT a.shard, min(positions[a.place]) + 1 AS first_position, sum(a.size)::integer AS events,
               string_agg(int8send(versions[a.place] + 1) || int4send(a.size), ''::bytea ORDER BY positions[a.place]) AS runs,
               string_agg(a.leaves, ''::bytea ORDER BY positions[a.place]) AS leaves
        FROM unnest(appends) WITH ORDINALITY AS a (grp, slot, stream_id, shard, execution_id, expected_version, size, keys,
                                                   digest, event_ids, leaves, place)
        WHERE positions[a.place] IS NOT NULL GROUP BY a.shard
    ) AS call;
END
$$;
COMMENT ON FUNCTION noetl.link_appends IS 'Adds one link to each shard that appends were written to, or keeps their leaves.';
REVOKE ALL ON FUNCTION noetl.link_appends FROM PUBLIC;
