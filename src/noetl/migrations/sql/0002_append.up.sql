-- The only way into the ledger. One call takes many appends of one organization, decides each, numbers the survivors
-- and writes them; a caller can neither choose positions nor change a row.
--
-- Lock order, the same for every caller: idempotency keys sorted, streams sorted, shard heads ascending, and nothing
-- that may block after a head. Outcomes: 0 written, 1 repeated, 2 wrong expected version, 3 key reused with other
-- content, 4 recorded already, 5 payload collected.

CREATE TABLE noetl.payload_tombstone (
    tenant_id       text COLLATE "C" NOT NULL,
    organization_id text COLLATE "C" NOT NULL,
    sha256          text COLLATE "C" NOT NULL,
    condemned_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    removed_at      timestamptz, -- when the object was gone: what is stored after that is safe from the collector
    PRIMARY KEY (tenant_id, organization_id, sha256)
);
COMMENT ON TABLE noetl.payload_tombstone IS
    'Objects that garbage collection took or is about to take. No event may refer to them until they are stored again.';
ALTER TABLE noetl.payload_tombstone ENABLE ROW LEVEL SECURITY;
ALTER TABLE noetl.payload_tombstone FORCE ROW LEVEL SECURITY;
CREATE POLICY scoped ON noetl.payload_tombstone TO noetl_runtime, current_user
    USING (tenant_id = (SELECT noetl.tenant()) AND organization_id = (SELECT noetl.organization()));
GRANT SELECT, INSERT, DELETE ON noetl.payload_tombstone TO noetl_runtime;
GRANT UPDATE (condemned_at, removed_at) ON noetl.payload_tombstone TO noetl_runtime;

CREATE FUNCTION noetl.payload_lock_v1(p_tenant text, p_organization text) RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN hashtextextended('noetl.payloads/' || p_tenant || '/' || p_organization, 0);
COMMENT ON FUNCTION noetl.payload_lock_v1(text, text) IS 'The advisory lock between appends with payloads and collectors.';

CREATE FUNCTION noetl.append_v1(
    p_tenant text, p_organization text, p_key_ttl interval, p_has_once boolean, p_has_payload boolean,
    -- distinct streams, sorted
    s_stream text[], s_shard smallint[], s_execution bigint[],
    -- appends
    a_stream integer[], a_expected bigint[], a_count integer[], a_digest bytea[],
    -- idempotency keys, sorted: the append each belongs to and its event's place in that append
    k_key text[], k_append integer[], k_ordinal integer[],
    -- events, in append order: the append each belongs to and its place in it
    e_append integer[], e_ordinal integer[],
    e_execution bigint[], e_event bigint[], e_time timestamptz[], e_causation bigint[], e_parent bigint[],
    e_stage bigint[], e_frame bigint[], e_loop bigint[], e_index bigint[], e_schema_version integer[],
    e_aggregate_type text[], e_aggregate_id text[], e_type text[], e_schema text[], e_producer text[],
    e_correlation text[], e_key text[], e_catalog text[], e_node text[], e_node_type text[], e_status text[],
    e_command text[], e_shard_id text[], e_payload text[], e_fields text[], e_error text[],
    e_meta json[], e_context json[], e_result json[], e_item json[], e_payload_ref json[], e_fields_ref json[]
) RETURNS TABLE (outcome integer, first_version bigint, first_position bigint, event_ids bigint[])
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    appends    integer := cardinality(a_stream);
    verdict    integer[] := array_fill(0, ARRAY[appends]);
    base       bigint[] := array_fill(0::bigint, ARRAY[appends]);
    place      bigint[] := array_fill(0::bigint, ARRAY[appends]);
    repeated   record;
    reached    bigint[];
    shard_size bigint[] := array_fill(0::bigint, ARRAY[16]);
    shard_base bigint[] := array_fill(0::bigint, ARRAY[16]);
    head       record;
    now_at     timestamptz;
    written    integer := 0;
    slot       integer;
    shard_slot integer;
BEGIN
    IF p_tenant IS NULL OR p_organization IS NULL OR p_tenant = '' OR p_organization = ''
       OR coalesce(noetl.tenant(), p_tenant) <> p_tenant
       OR coalesce(noetl.organization(), p_organization) <> p_organization THEN
        RAISE insufficient_privilege USING MESSAGE = 'append outside the tenant and organization of this transaction';
    END IF;
    PERFORM set_config('noetl.tenant', p_tenant, true), set_config('noetl.organization', p_organization, true);

    IF cardinality(k_key) > 0 THEN
        WITH fresh AS (
            INSERT INTO noetl.idempotency_key AS known (tenant_id, organization_id, key, content_digest, execution_id,
                                                        event_id, ordinal, event_ids, expires_at)
            SELECT p_tenant, p_organization, k.key, a_digest[k.append], e.execution, e.event, k.ordinal, e.all_ids,
                   now() + p_key_ttl
            FROM unnest(k_key, k_append, k_ordinal) AS k (key, append, ordinal)
            JOIN (SELECT x.append, array_agg(x.event ORDER BY x.ordinal) AS all_ids, min(x.execution) AS execution
                  FROM unnest(e_append, e_ordinal, e_event, e_execution) AS x (append, ordinal, event, execution)
                  GROUP BY x.append) AS a ON a.append = k.append
            CROSS JOIN LATERAL (SELECT a.execution, a.all_ids[k.ordinal] AS event, a.all_ids) AS e
            ORDER BY k.key
            ON CONFLICT (tenant_id, organization_id, key) DO UPDATE
                SET content_digest = excluded.content_digest, execution_id = excluded.execution_id,
                    event_id = excluded.event_id, ordinal = excluded.ordinal, event_ids = excluded.event_ids,
                    expires_at = excluded.expires_at
                WHERE known.expires_at < now()
            RETURNING known.key
        )
        SELECT coalesce(array_agg(fresh.key), '{}') AS keys FROM fresh INTO repeated;
        FOR head IN
            SELECT k.append, bool_and(known.content_digest = a_digest[k.append])
                   AND count(known.key) = count(*) AND count(*) FILTER (WHERE k.key = ANY (repeated.keys)) = 0 AS same
            FROM unnest(k_key, k_append) AS k (key, append)
            LEFT JOIN noetl.idempotency_key AS known
                ON known.tenant_id = p_tenant AND known.organization_id = p_organization AND known.key = k.key
            GROUP BY k.append
            HAVING count(*) FILTER (WHERE k.key = ANY (repeated.keys)) < count(*)
        LOOP
            verdict[head.append] := CASE WHEN head.same THEN 1 ELSE 3 END;
        END LOOP;
    END IF;

    INSERT INTO noetl.stream (tenant_id, organization_id, stream_id, shard, execution_id)
    SELECT p_tenant, p_organization, s.stream, s.shard, s.execution
    FROM unnest(s_stream, s_shard, s_execution) AS s (stream, shard, execution)
    WHERE NOT EXISTS (SELECT FROM noetl.stream AS known WHERE known.tenant_id = p_tenant
                      AND known.organization_id = p_organization AND known.stream_id = s.stream)
    ORDER BY s.stream COLLATE "C"
    ON CONFLICT DO NOTHING;
    SELECT array_agg(held.version ORDER BY held.stream_id) INTO reached FROM (
        SELECT known.stream_id, known.version FROM noetl.stream AS known
        WHERE known.tenant_id = p_tenant AND known.organization_id = p_organization
          AND known.stream_id = ANY (s_stream)
        ORDER BY known.stream_id FOR UPDATE
    ) AS held;
    IF cardinality(reached) IS DISTINCT FROM cardinality(s_stream) THEN
        RAISE serialization_failure USING MESSAGE = 'a stream of this append was removed meanwhile; try again';
    END IF;

    IF p_has_once THEN
        -- Facts that may stand once per execution; the unique indexes stop the losers of a race.
        FOR head IN
            SELECT DISTINCT e.append
            FROM unnest(e_append, e_execution, e_type, e_command, e_loop) AS e (append, execution, type, command, loop)
            WHERE (e.type = 'command.issued' AND EXISTS (SELECT FROM noetl.event AS x
                       WHERE x.execution_id = e.execution AND x.command_id = e.command AND x.tenant_id = p_tenant
                       AND x.organization_id = p_organization AND x.event_type = 'command.issued'))
               OR (e.type = 'loop.done' AND EXISTS (SELECT FROM noetl.event AS x
                       WHERE x.execution_id = e.execution AND x.loop_id = e.loop AND x.tenant_id = p_tenant
                       AND x.organization_id = p_organization AND x.event_type = 'loop.done'))
               OR (e.type = 'loop.fanin.completed' AND EXISTS (SELECT FROM noetl.event AS x
                       WHERE x.execution_id = e.execution AND x.loop_id = e.loop AND x.tenant_id = p_tenant
                       AND x.organization_id = p_organization AND x.event_type = 'loop.fanin.completed'))
        LOOP
            verdict[head.append] := CASE WHEN verdict[head.append] = 0 THEN 4 ELSE verdict[head.append] END;
        END LOOP;
    END IF;
    IF p_has_payload THEN
        -- Shared with all appends, exclusive for a collector: it cannot condemn between this look and our commit.
        PERFORM pg_advisory_xact_lock_shared(noetl.payload_lock_v1(p_tenant, p_organization));
        FOR head IN
            SELECT DISTINCT e.append FROM unnest(e_append, e_payload, e_fields) AS e (append, payload, fields)
            JOIN noetl.payload_tombstone AS grave
              ON grave.tenant_id = p_tenant AND grave.organization_id = p_organization
             AND grave.sha256 IN (e.payload, e.fields)
        LOOP
            verdict[head.append] := CASE WHEN verdict[head.append] = 0 THEN 5 ELSE verdict[head.append] END;
        END LOOP;
    END IF;

    FOR number IN 1..appends LOOP
        slot := a_stream[number];
        base[number] := reached[slot];
        IF verdict[number] = 0 THEN
            IF a_expected[number] IS NOT NULL AND a_expected[number] <> reached[slot] THEN
                verdict[number] := 2;
            ELSE
                shard_slot := s_shard[slot] + 1;
                place[number] := shard_size[shard_slot];
                shard_size[shard_slot] := shard_size[shard_slot] + a_count[number];
                reached[slot] := reached[slot] + a_count[number];
                written := written + 1;
            END IF;
        END IF;
    END LOOP;

    IF written < appends AND cardinality(k_key) > 0 THEN
        DELETE FROM noetl.idempotency_key AS known
        USING unnest(k_key, k_append) AS k (key, append)
        WHERE known.tenant_id = p_tenant AND known.organization_id = p_organization AND known.key = k.key
          AND verdict[k.append] <> 0 AND known.key = ANY (repeated.keys);
    END IF;

    IF written < appends THEN
        -- A stream made above for an append that was refused has no events, so it must not stand.
        DELETE FROM noetl.stream AS known
        USING unnest(s_stream, reached) AS s (stream, version)
        WHERE known.tenant_id = p_tenant AND known.organization_id = p_organization
          AND known.stream_id = s.stream AND s.version = 0;
    END IF;

    IF written > 0 THEN
        UPDATE noetl.stream AS known SET version = s.version
        FROM unnest(s_stream, reached) AS s (stream, version)
        WHERE known.tenant_id = p_tenant AND known.organization_id = p_organization
          AND known.stream_id = s.stream AND known.version <> s.version;

        -- One time for the whole call, taken once the heads are held: time never runs backwards within a shard.
        SELECT greatest(max(held.last_ingest), clock_timestamp()) INTO now_at FROM (
            SELECT h.last_ingest FROM noetl.shard AS h
            WHERE h.shard = ANY (s_shard) AND shard_size[h.shard + 1] > 0
            ORDER BY h.shard FOR UPDATE
        ) AS held;
        FOR head IN
            UPDATE noetl.shard AS h SET position = h.position + shard_size[h.shard + 1], last_ingest = now_at
            WHERE h.shard = ANY (s_shard) AND shard_size[h.shard + 1] > 0
            RETURNING h.shard, h.position
        LOOP
            shard_base[head.shard + 1] := head.position - shard_size[head.shard + 1];
        END LOOP;
        INSERT INTO noetl.event (
            execution_id, event_id, position, stream_version, event_time, ingest_time, causation_id,
            parent_execution_id, stage_id, frame_id, loop_id, current_index, schema_version, shard, tenant_id,
            organization_id, stream_id, aggregate_type, aggregate_id, event_type, schema_name, producer,
            correlation_id, idempotency_key, catalog_id, node_name, node_type, status, command_id, shard_id,
            payload_sha256, fields_sha256, error, meta, context, result, current_item, payload_ref, fields_ref)
        SELECT e.execution, e.event, shard_base[s_shard[a_stream[e.append]] + 1] + place[e.append] + e.ordinal,
               base[e.append] + e.ordinal, e.at, now_at, e.causation, e.parent, e.stage, e.frame, e.loop, e.index,
               e.schema_version, s_shard[a_stream[e.append]], p_tenant, p_organization, s_stream[a_stream[e.append]],
               e.aggregate_type, e.aggregate_id, e.type, e.schema, e.producer, e.correlation, e.key, e.catalog, e.node,
               e.node_type, e.status, e.command, e.shard_id, e.payload, e.fields, e.error, e.meta, e.context, e.result,
               e.item, e.payload_ref, e.fields_ref
        FROM unnest(e_append, e_ordinal, e_execution, e_event, e_time, e_causation, e_parent, e_stage, e_frame, e_loop,
                    e_index, e_schema_version, e_aggregate_type, e_aggregate_id, e_type, e_schema, e_producer,
                    e_correlation, e_key, e_catalog, e_node, e_node_type, e_status, e_command, e_shard_id, e_payload,
                    e_fields, e_error, e_meta, e_context, e_result, e_item, e_payload_ref, e_fields_ref)
             AS e (append, ordinal, execution, event, at, causation, parent, stage, frame, loop, index, schema_version,
                   aggregate_type, aggregate_id, type, schema, producer, correlation, key, catalog, node, node_type,
                   status, command, shard_id, payload, fields, error, meta, context, result, item, payload_ref,
                   fields_ref)
        WHERE verdict[e.append] = 0;
    END IF;

    FOR number IN 1..appends LOOP
        outcome := verdict[number];
        event_ids := NULL;
        IF outcome = 1 THEN
            SELECT e.stream_version - known.ordinal + 1, e.position - known.ordinal + 1, known.event_ids
            INTO first_version, first_position, event_ids
            FROM unnest(k_key, k_append) AS k (key, append)
            JOIN noetl.idempotency_key AS known ON known.tenant_id = p_tenant
                AND known.organization_id = p_organization AND known.key = k.key
            JOIN noetl.event AS e ON e.execution_id = known.execution_id AND e.event_id = known.event_id
                AND e.tenant_id = p_tenant AND e.organization_id = p_organization
            WHERE k.append = number LIMIT 1;
        ELSE
            first_version := base[number] + 1;
            first_position := shard_base[s_shard[a_stream[number]] + 1] + place[number] + 1;
        END IF;
        RETURN NEXT;
    END LOOP;
END
$$;
COMMENT ON FUNCTION noetl.append_v1 IS 'Decides, numbers and writes appends of one organization; the only way in.';
REVOKE ALL ON FUNCTION noetl.append_v1 FROM PUBLIC;
GRANT EXECUTE ON FUNCTION noetl.append_v1 TO noetl_runtime;
