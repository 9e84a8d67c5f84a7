CREATE OR REPLACE FUNCTION noetl.materialize(
    p_stream text, p_created text, p_shard smallint, p_sequence bigint, p_message_id text, p_token uuid, p_rows json,
    p_leaves bytea
) RETURNS TABLE(written bigint, repeated bigint, last_position bigint)
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
    came     noetl.event[];
    fresh    noetl.event[];
    own      noetl.event[];
    proofs   bytea[];
    leaves   bytea[];
    versions bigint[];
    times    timestamptz[];
    upto     bigint;
    facts    boolean;
    behind   boolean := false;
    floor_at timestamptz;
    head     bigint;
BEGIN
    PERFORM FROM noetl.shard_lease AS held WHERE held.role = 'materializer' AND held.shard = p_shard
        AND noetl.lease_is_held(held.lease_token, held.lease_until, p_token) FOR KEY SHARE;
    IF NOT FOUND THEN
        RAISE SQLSTATE 'NE002' USING MESSAGE = format('shard %s belongs to another materializer now', p_shard);
    END IF;
    SELECT coalesce(array_agg(r ORDER BY x.place), '{}') INTO came
    FROM json_array_elements(p_rows) WITH ORDINALITY AS x (body, place),
         LATERAL json_populate_record(NULL::noetl.event, x.body) AS r;
    -- Delivered again, or twice in one batch: the first stands.
    SELECT coalesce(array_agg(came[first.n] ORDER BY first.n), '{}'),
           array_agg(substring(p_leaves FROM first.n * 32 - 31 FOR 32) ORDER BY first.n)
    INTO fresh, proofs
    FROM (SELECT min(n) AS n FROM generate_subscripts(came, 1) AS n
          GROUP BY (came[n]).execution_id, (came[n]).event_id, (came[n]).tenant_id, (came[n]).organization_id) AS first
    WHERE NOT EXISTS (
        SELECT FROM noetl.event AS known
        WHERE known.execution_id = (came[first.n]).execution_id AND known.event_id = (came[first.n]).event_id
          AND known.tenant_id = (came[first.n]).tenant_id AND known.organization_id = (came[first.n]).organization_id);
    repeated := cardinality(came) - cardinality(fresh);
    facts := EXISTS (SELECT FROM unnest(fresh) AS r WHERE r.stream_version IS NULL);

    IF facts THEN
        INSERT INTO noetl.stream (tenant_id, organization_id, stream_id, shard, execution_id)
        SELECT DISTINCT r.tenant_id, r.organization_id, r.stream_id, p_shard,
               substring(r.stream_id FROM '^execution/([0-9]+)(?:/|$)')::bigint
        FROM unnest(fresh) AS r WHERE r.stream_version IS NULL
        ORDER BY r.tenant_id, r.organization_id, r.stream_id
        ON CONFLICT DO NOTHING;
        PERFORM FROM noetl.stream AS known
        WHERE (known.tenant_id, known.organization_id, known.stream_id) IN (
            SELECT r.tenant_id, r.organization_id, r.stream_id FROM unnest(fresh) AS r WHERE r.stream_version IS NULL)
        ORDER BY known.tenant_id, known.organization_id, known.stream_id FOR UPDATE;
        -- Held, so that no change of this shard commits with an earlier time than the facts get.
        PERFORM FROM noetl.shard_outbox AS o WHERE o.shard = p_shard FOR SHARE;
    END IF;

    SELECT s.last_ingest INTO floor_at FROM noetl.shard AS s WHERE s.shard = p_shard FOR UPDATE;
    WITH asked AS MATERIALIZED (
        -- Up to which waiting event a row needs all of them to stand before it.
        SELECT n, max(CASE WHEN (fresh[n]).stream_version IS NOT NULL THEN (fresh[n]).position ELSE (
                   SELECT max(p.position) FROM noetl.pending_event AS p
                   WHERE p.tenant_id = (fresh[n]).tenant_id AND p.organization_id = (fresh[n]).organization_id
                     AND p.stream_id = (fresh[n]).stream_id) END) OVER (ORDER BY n) AS upto
        FROM generate_subscripts(fresh, 1) AS n
    ), waiting AS MATERIALIZED (
        SELECT ROW (p.*)::noetl.event AS r, p.position AS place, (SELECT min(a.n) FROM asked AS a WHERE a.upto >= p.position) AS before,
               (SELECT substring(l.leaves FROM (p.position - l.first_position)::integer * 32 + 1 FOR 32)
                FROM noetl.pending_leaf AS l WHERE l.shard = p_shard AND l.first_position <= p.position
                ORDER BY l.first_position DESC LIMIT 1) AS leaf
        FROM noetl.pending_event AS p WHERE p.shard = p_shard AND p.position <= (SELECT max(a.upto) FROM asked AS a)
    ), taken AS (
        SELECT w.before AS n, 0 AS class, w.place, w.r, w.leaf FROM waiting AS w
        UNION ALL
        SELECT n, 1, 0, fresh[n], proofs[n] FROM generate_subscripts(fresh, 1) AS n
        WHERE NOT EXISTS (
            SELECT FROM waiting AS w WHERE (w.r).execution_id = (fresh[n]).execution_id AND (w.r).event_id = (fresh[n]).event_id
               AND (w.r).tenant_id = (fresh[n]).tenant_id AND (w.r).organization_id = (fresh[n]).organization_id)
    ), told AS (
        SELECT t.r, t.leaf, row_number() OVER way AS nth,
               coalesce((t.r).stream_version, known.version + row_number() OVER (
                   PARTITION BY (t.r).tenant_id, (t.r).organization_id, (t.r).stream_id, (t.r).stream_version IS NULL
                   ORDER BY t.n, t.class, t.place)) AS version,
               max((t.r).ingest_time) OVER way AS so_far
        FROM taken AS t
        LEFT JOIN noetl.stream AS known ON (t.r).stream_version IS NULL AND known.tenant_id = (t.r).tenant_id
             AND known.organization_id = (t.r).organization_id AND known.stream_id = (t.r).stream_id
        WINDOW way AS (ORDER BY t.n, t.class, t.place)
    )
    SELECT coalesce(array_agg(t.r ORDER BY t.nth), '{}'), array_agg(t.version ORDER BY t.nth),
           array_agg(t.so_far ORDER BY t.nth), (SELECT max(a.upto) FROM asked AS a),
           array_agg(t.leaf ORDER BY t.nth)
    INTO own, versions, times, upto, leaves FROM told AS t;
    written := cardinality(own);
    last_position := 0;

    IF written > 0 THEN
        -- A fact is as old as what stands before it while anything waits that is older than now.
        SELECT EXISTS (SELECT FROM noetl.pending_event AS p WHERE p.shard = p_shard AND p.position > coalesce(upto, 0))
        INTO behind;
        IF floor_at = '-infinity' THEN
            SELECT coalesce(min(p.ingest_time), clock_timestamp()) INTO floor_at
            FROM noetl.pending_event AS p WHERE p.shard = p_shard;
        END IF;
        FOR n IN 1..written LOOP
            times[n] := CASE
                WHEN (own[n]).ingest_time IS NOT NULL THEN (own[n]).ingest_time
                WHEN behind OR times[written] IS DISTINCT FROM times[n] THEN greatest(floor_at, times[n])
                ELSE greatest(floor_at, times[n], clock_timestamp()) END;
            floor_at := greatest(floor_at, times[n]);
        END LOOP;
        UPDATE noetl.shard AS s SET position = s.position + written, last_ingest = greatest(s.last_ingest, times[written])
        WHERE s.shard = p_shard RETURNING s.position INTO head;
        last_position := head;
        INSERT INTO noetl.event (
            -- begin generated: columns of an event
            execution_id, event_id, position, stream_version, event_time, ingest_time, causation_id,
            parent_execution_id, stage_id, frame_id, loop_id, current_index, schema_version, shard, tenant_id,
            organization_id, stream_id, aggregate_type, aggregate_id, event_type, schema_name, producer, correlation_id,
            idempotency_key, catalog_id, node_name, node_type, status, command_id, shard_id, payload_sha256,
            fields_sha256, error, meta, context, result, current_item, payload_ref, fields_ref
            -- end generated
        )
        SELECT
            -- begin generated: values of a streamed event
            r.execution_id, r.event_id, head - written + n, versions[n], r.event_time, times[n], r.causation_id,
            r.parent_execution_id, r.stage_id, r.frame_id, r.loop_id, r.current_index, r.schema_version, p_shard,
            r.tenant_id, r.organization_id, r.stream_id, r.aggregate_type, r.aggregate_id, noetl.declared(r.event_type),
            r.schema_name, r.producer, r.correlation_id, r.idempotency_key, r.catalog_id, r.node_name, r.node_type,
            r.status, r.command_id, r.shard_id, r.payload_sha256, r.fields_sha256, r.error, r.meta, r.context, r.result,
            r.current_item, r.payload_ref, r.fields_ref
            -- end generated
        FROM generate_subscripts(own, 1) AS n, LATERAL (SELECT (own[n]).*) AS r;
        PERFORM noetl.add_link(
            p_shard, head - written + 1, written::integer,
            CASE WHEN min(times[n]) = max(times[n]) THEN timestamptz_send(min(times[n]))
                 ELSE string_agg(timestamptz_send(times[n]), ''::bytea ORDER BY n) END,
            string_agg(int8send(versions[n]) || int4send(1), ''::bytea ORDER BY n),
            string_agg(leaves[n], ''::bytea ORDER BY n))
        FROM generate_series(1, written) AS n;
        IF facts THEN
            UPDATE noetl.stream AS known SET version = greatest(known.version, reached.version)
            FROM (SELECT (own[n]).tenant_id, (own[n]).organization_id, (own[n]).stream_id, max(versions[n]) AS version
                  FROM generate_subscripts(own, 1) AS n WHERE (own[n]).stream_version IS NULL GROUP BY 1, 2, 3) AS reached
            WHERE known.tenant_id = reached.tenant_id AND known.organization_id = reached.organization_id
              AND known.stream_id = reached.stream_id;
        END IF;
        DELETE FROM noetl.pending_event AS p WHERE p.shard = p_shard AND p.position <= upto;
        DELETE FROM noetl.pending_leaf AS l
        WHERE l.shard = p_shard AND l.first_position <= upto AND l.first_position + l.events - 1 <= upto;
    END IF;
    INSERT INTO noetl.materialized AS m (stream_name, shard, sequence, message_id, stream_created, written)
    VALUES (p_stream, p_shard, p_sequence, p_message_id, p_created, materialize.written)
    ON CONFLICT (stream_name, shard) DO UPDATE SET updated_at = clock_timestamp(), written = m.written + excluded.written,
        stream_created = excluded.stream_created,
        sequence = CASE WHEN m.stream_created = excluded.stream_created AND m.sequence > excluded.sequence
            THEN m.sequence ELSE excluded.sequence END,
        message_id = CASE WHEN m.stream_created = excluded.stream_created AND m.sequence > excluded.sequence
            THEN m.message_id ELSE excluded.message_id END;
    RETURN NEXT;
END
$$;
COMMENT ON FUNCTION noetl.materialize IS
    'Writes a batch of a shard''s stream into the ledger; a row that stands is left.';
REVOKE ALL ON FUNCTION noetl.materialize FROM PUBLIC;
GRANT EXECUTE ON FUNCTION noetl.materialize TO noetl_materializer;
