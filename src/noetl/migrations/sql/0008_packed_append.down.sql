-- The way in as it was before: every column of the events an array of its own.

DROP FUNCTION noetl.append_v3;
DROP FUNCTION noetl.append_groups_v1;
DROP TYPE noetl.new_event, noetl.new_append, noetl.lease_fence;

-- The only way into the ledger. One call takes many appends of one organization, decides each group of them, numbers
-- the survivors, writes them and changes the rows of open work they speak of; a caller can neither choose positions
-- nor change a row.
--
-- Lock order, the same for every caller: idempotency keys sorted, leases sorted, streams sorted, shard heads ascending,
-- and rows of stages under the heads of their execution's shard. Outcomes: 0 written, 1 repeated, 2 wrong expected version,
-- 3 key reused with other content, 4 recorded already, 5 payload collected, 6 lease lost, 7 refused with its group.
CREATE FUNCTION noetl.append_v2(
    p_tenant text, p_organization text, p_key_ttl interval, p_has_once boolean, p_has_payload boolean,
    -- which inline rows the events change: none for plain facts
    p_work text[],
    -- fences, sorted by table and id: the lease a group relies on. Modes: 1 held and lasting, 2 run out, 3 free
    f_group integer[], f_table text[], f_execution bigint[], f_id text[], f_attempt integer[], f_token uuid[],
    f_mode smallint[],
    -- distinct streams, sorted
    s_stream text[], s_shard smallint[], s_execution bigint[],
    -- appends: those of one group stand or fall together
    a_group integer[], a_stream integer[], a_expected bigint[], a_count integer[], a_digest bytea[],
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
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    -- Planning anew for every call would take longer than the call: all that varies is how much is in the arrays.
    SET plan_cache_mode = force_generic_plan AS $$
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
    lost       integer[] := '{}';
    starts     integer[] := array_fill(1, ARRAY[appends]); -- where the events of each append begin
    first      integer;
    last       integer;
    sound      boolean;
    ending     text[] := ARRAY['execution.cancelled', 'execution.failed', 'playbook.completed', 'playbook.failed',
                               'workflow.completed', 'workflow.failed'];
    winners    integer[];
    losers     integer[] := '{}';
    standing   integer[] := '{}';
BEGIN
    IF p_tenant IS NULL OR p_organization IS NULL OR p_tenant = '' OR p_organization = ''
       OR coalesce(noetl.tenant(), p_tenant) <> p_tenant
       OR coalesce(noetl.organization(), p_organization) <> p_organization THEN
        RAISE insufficient_privilege USING MESSAGE = 'append outside the tenant and organization of this transaction';
    END IF;
    PERFORM set_config('noetl.tenant', p_tenant, true), set_config('noetl.organization', p_organization, true);

    FOR number IN 2..appends LOOP
        starts[number] := starts[number - 1] + a_count[number - 1];
    END LOOP;

    IF cardinality(k_key) > 0 THEN
        WITH fresh AS (
            INSERT INTO noetl.idempotency_key AS known (tenant_id, organization_id, key, content_digest, execution_id,
                                                        event_id, ordinal, event_ids, expires_at)
            SELECT p_tenant, p_organization, k.key, a_digest[k.append], e_execution[starts[k.append]],
                   e_event[starts[k.append] + k.ordinal - 1], k.ordinal,
                   e_event[starts[k.append] : starts[k.append] + a_count[k.append] - 1], now() + p_key_ttl
            FROM unnest(k_key, k_append, k_ordinal) AS k (key, append, ordinal)
            ORDER BY k.key
            ON CONFLICT (tenant_id, organization_id, key) DO UPDATE
                SET content_digest = excluded.content_digest, execution_id = excluded.execution_id,
                    event_id = excluded.event_id, ordinal = excluded.ordinal, event_ids = excluded.event_ids,
                    expires_at = excluded.expires_at
                WHERE known.expires_at < now()
            RETURNING known.key
        )
        SELECT coalesce(array_agg(fresh.key), '{}') AS keys FROM fresh INTO repeated;
        IF cardinality(repeated.keys) < cardinality(k_key) THEN
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
    END IF;

    IF p_work && (ending || ARRAY['command.failed', 'stage.closed']) THEN
        PERFORM noetl.lock_work_v1(p_tenant, p_organization, ending, f_table, f_execution, f_id, e_execution, e_stage,
                                   e_frame, e_type, e_command);
    END IF;
    IF cardinality(f_group) > 0 THEN
        SELECT coalesce(array_agg(broken.grp), '{}') INTO lost
        FROM noetl.broken_fences_v1(p_tenant, p_organization, f_group, f_table, f_execution, f_id, f_attempt, f_token,
                                    f_mode) AS broken (grp);
        FOR number IN 1..appends LOOP
            IF a_group[number] = ANY (lost) AND verdict[number] = 0 THEN
                verdict[number] := 6;
            END IF;
        END LOOP;
    END IF;

    SELECT array_agg(held.version ORDER BY held.stream_id) INTO reached FROM (
        SELECT known.stream_id, known.version FROM noetl.stream AS known
        WHERE known.tenant_id = p_tenant AND known.organization_id = p_organization
          AND known.stream_id = ANY (s_stream)
        ORDER BY known.stream_id FOR UPDATE
    ) AS held;
    IF cardinality(reached) IS DISTINCT FROM cardinality(s_stream) THEN
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
    END IF;
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

    IF cardinality(p_work) > 0 AND a_group[appends] > 1 THEN
        SELECT coalesce(array_agg(o.loser), '{}'), array_agg(o.winner) INTO losers, winners
        FROM noetl.overtaken_v1(ending, f_group, f_table, f_execution, f_id, a_group, e_append, e_execution, e_stage,
                                e_frame, e_type, e_command) AS o;
    END IF;
    first := 1;
    WHILE first <= appends LOOP
        last := first;
        sound := true;
        LOOP
            slot := a_stream[last];
            base[last] := reached[slot];
            IF verdict[last] = 0 AND a_expected[last] IS NOT NULL AND a_expected[last] <> reached[slot] THEN
                verdict[last] := 2;
            END IF;
            sound := sound AND verdict[last] = 0;
            EXIT WHEN last = appends OR a_group[last + 1] <> a_group[first];
            last := last + 1;
        END LOOP;
        IF sound AND a_group[first] = ANY (losers) THEN
            sound := NOT EXISTS (SELECT FROM unnest(losers, winners) AS o (loser, winner)
                                 WHERE o.loser = a_group[first] AND o.winner = ANY (standing));
            verdict[first] := CASE WHEN sound THEN 0 ELSE 6 END;
        END IF;
        IF sound AND cardinality(losers) > 0 THEN
            standing := standing || a_group[first];
        END IF;
        FOR number IN first..last LOOP
            IF sound THEN
                slot := a_stream[number];
                shard_slot := s_shard[slot] + 1;
                base[number] := reached[slot];
                place[number] := shard_size[shard_slot];
                shard_size[shard_slot] := shard_size[shard_slot] + a_count[number];
                reached[slot] := reached[slot] + a_count[number];
                written := written + 1;
            ELSIF verdict[number] = 0 THEN
                verdict[number] := 7;
            END IF;
        END LOOP;
        first := last + 1;
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
        IF cardinality(s_stream) > 1 THEN
            PERFORM FROM noetl.shard AS h WHERE h.shard = ANY (s_shard) AND shard_size[h.shard + 1] > 0
            ORDER BY h.shard FOR UPDATE;
        END IF;
        FOR head IN
            UPDATE noetl.shard AS h SET position = h.position + shard_size[h.shard + 1],
                                        last_ingest = greatest(h.last_ingest, clock_timestamp())
            WHERE h.shard = ANY (s_shard) AND shard_size[h.shard + 1] > 0
            RETURNING h.shard, h.position, h.last_ingest
        LOOP
            shard_base[head.shard + 1] := head.position - shard_size[head.shard + 1];
            now_at := greatest(now_at, head.last_ingest);
        END LOOP;
        IF cardinality(s_stream) > 1 THEN
            UPDATE noetl.shard AS h SET last_ingest = now_at
            WHERE h.shard = ANY (s_shard) AND shard_size[h.shard + 1] > 0 AND h.last_ingest < now_at;
        END IF;
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

        IF cardinality(p_work) > 0 THEN
            PERFORM noetl.apply_work_v1(
                p_tenant, p_organization, p_work, now_at,
                (SELECT array_agg(verdict[x.append] = 0 ORDER BY x.place)
                 FROM unnest(e_append) WITH ORDINALITY AS x (append, place)),
                e_execution, e_event, e_time, e_parent, e_stage, e_frame, e_loop, e_index, e_type, e_catalog, e_node,
                e_command, e_shard_id, e_meta, e_context, e_payload_ref);
        END IF;
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
COMMENT ON FUNCTION noetl.append_v2 IS 'Decides, numbers and writes appends of one organization; the only way in.';
REVOKE ALL ON FUNCTION noetl.append_v2 FROM PUBLIC;
GRANT EXECUTE ON FUNCTION noetl.append_v2 TO noetl_runtime;
