-- The long way, which takes any number of groups; it runs in the rights and settings of `noetl.append`.
--
-- Lock order, the same for every caller: idempotency keys sorted, leases sorted, streams sorted, shard heads ascending,
-- and rows of stages under the heads of their execution's shard.
CREATE OR REPLACE FUNCTION noetl.append_groups(
    p_tenant text, p_organization text, p_key_ttl interval, p_has_once boolean, p_has_payload boolean,
    p_work text[], fences noetl.lease_fence[], appends noetl.new_append[], events noetl.new_event[]
) RETURNS TABLE(outcome integer, first_version bigint, first_position bigint, event_ids bigint[])
    LANGUAGE plpgsql AS $$
DECLARE
    many       integer := cardinality(appends);
    keyed      bigint;
    -- appends, the distinct streams by slot, and as much of fences and events as those need who lock and change work
    a_group integer[]; a_stream integer[]; a_expected bigint[]; a_size integer[];
    s_stream text[]; s_shard smallint[]; s_execution bigint[];
    f_group integer[] := '{}'; f_table text[] := '{}'; f_execution bigint[] := '{}'; f_id text[] := '{}';
    f_attempt integer[]; f_token uuid[]; f_mode smallint[];
    e_append integer[]; e_execution bigint[]; e_event bigint[]; e_time timestamptz[]; e_parent bigint[];
    e_stage bigint[]; e_frame bigint[]; e_loop bigint[]; e_index bigint[]; e_type text[]; e_catalog text[];
    e_node text[]; e_command text[]; e_shard_id text[]; e_meta json[]; e_context json[]; e_payload_ref json[];
    verdict    integer[] := array_fill(0, ARRAY[many]);
    base       bigint[] := array_fill(0::bigint, ARRAY[many]);
    place      bigint[] := array_fill(0::bigint, ARRAY[many]);
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
    first      integer;
    last       integer;
    sound      boolean;
    ending     text[] := ARRAY['execution.cancelled', 'execution.failed', 'playbook.completed', 'playbook.failed',
                               'workflow.completed', 'workflow.failed'];
    winners    integer[];
    losers     integer[] := '{}';
    standing   integer[] := '{}';
BEGIN
    SELECT array_agg(a.grp ORDER BY a.place), array_agg(a.slot ORDER BY a.place),
           array_agg(a.expected_version ORDER BY a.place), array_agg(a.size ORDER BY a.place), sum(a.keys)
    INTO a_group, a_stream, a_expected, a_size, keyed
    FROM unnest(appends) WITH ORDINALITY AS a (grp, slot, stream_id, shard, execution_id, expected_version, size, keys,
                                               digest, event_ids, place);
    SELECT array_agg(s.stream_id ORDER BY s.slot), array_agg(s.shard ORDER BY s.slot),
           array_agg(s.execution_id ORDER BY s.slot)
    INTO s_stream, s_shard, s_execution
    FROM (SELECT DISTINCT ON (a.slot) a.slot, a.stream_id, a.shard, a.execution_id FROM unnest(appends) AS a
          ORDER BY a.slot) AS s;
    IF cardinality(fences) > 0 THEN
        SELECT array_agg(f.grp), array_agg(f.table_name), array_agg(f.execution_id), array_agg(f.id),
               array_agg(f.attempt), array_agg(f.token), array_agg(f.mode)
        INTO f_group, f_table, f_execution, f_id, f_attempt, f_token, f_mode FROM unnest(fences) AS f;
    END IF;
    IF cardinality(p_work) > 0 THEN
        SELECT array_agg(e.append), array_agg(e.execution_id), array_agg(e.event_id), array_agg(e.event_time),
               array_agg(e.parent_execution_id), array_agg(e.stage_id), array_agg(e.frame_id), array_agg(e.loop_id),
               array_agg(e.current_index), array_agg(e.event_type), array_agg(e.catalog_id), array_agg(e.node_name),
               array_agg(e.command_id), array_agg(e.shard_id), array_agg(e.meta), array_agg(e.context),
               array_agg(e.payload_ref)
        INTO e_append, e_execution, e_event, e_time, e_parent, e_stage, e_frame, e_loop, e_index, e_type, e_catalog,
             e_node, e_command, e_shard_id, e_meta, e_context, e_payload_ref
        FROM unnest(events) AS e;
    END IF;

    IF keyed > 0 THEN
        WITH fresh AS (
            INSERT INTO noetl.idempotency_key AS known (tenant_id, organization_id, key, content_digest, execution_id,
                                                        event_id, ordinal, event_ids, expires_at)
            SELECT p_tenant, p_organization, e.idempotency_key, appends[e.append].digest, e.execution_id, e.event_id,
                   e.ordinal, appends[e.append].event_ids, now() + p_key_ttl
            FROM unnest(events) AS e WHERE e.idempotency_key IS NOT NULL
            ORDER BY e.idempotency_key COLLATE "C"
            ON CONFLICT (tenant_id, organization_id, key) DO UPDATE
                SET content_digest = excluded.content_digest, execution_id = excluded.execution_id,
                    event_id = excluded.event_id, ordinal = excluded.ordinal, event_ids = excluded.event_ids,
                    expires_at = excluded.expires_at
                WHERE known.expires_at < now()
            RETURNING known.key
        )
        SELECT coalesce(array_agg(fresh.key), '{}') AS keys FROM fresh INTO repeated;
        IF cardinality(repeated.keys) < keyed THEN
            FOR head IN
                SELECT e.append, bool_and(known.content_digest = appends[e.append].digest)
                       AND count(known.key) = count(*)
                       AND count(*) FILTER (WHERE e.idempotency_key = ANY (repeated.keys)) = 0 AS same
                FROM unnest(events) AS e
                LEFT JOIN noetl.idempotency_key AS known ON known.tenant_id = p_tenant
                    AND known.organization_id = p_organization AND known.key = e.idempotency_key
                WHERE e.idempotency_key IS NOT NULL
                GROUP BY e.append
                HAVING count(*) FILTER (WHERE e.idempotency_key = ANY (repeated.keys)) < count(*)
            LOOP
                verdict[head.append] := CASE WHEN head.same THEN 1 ELSE 3 END;
            END LOOP;
        END IF;
    END IF;

    IF p_work && (ending || ARRAY['command.failed', 'stage.closed']) THEN
        PERFORM noetl.lock_work(p_tenant, p_organization, ending, f_table, f_execution, f_id, e_execution, e_stage,
                                   e_frame, e_type, e_command);
    END IF;
    IF cardinality(fences) > 0 THEN
        SELECT coalesce(array_agg(broken.grp), '{}') INTO lost
        FROM noetl.broken_fences(p_tenant, p_organization, f_group, f_table, f_execution, f_id, f_attempt, f_token,
                                    f_mode) AS broken (grp);
        FOR number IN 1..many LOOP
            IF a_group[number] = ANY (lost) AND verdict[number] = 0 THEN
                verdict[number] := 6;
            END IF;
        END LOOP;
    END IF;

    -- One by one in their order: a plan made without statistics would read all streams of the organization instead.
    SELECT array_agg(held.version ORDER BY s.place) INTO reached
    FROM unnest(s_stream) WITH ORDINALITY AS s (stream, place)
    CROSS JOIN LATERAL (
        SELECT known.version FROM noetl.stream AS known
        WHERE known.tenant_id = p_tenant AND known.organization_id = p_organization AND known.stream_id = s.stream
        FOR UPDATE
    ) AS held;
    IF cardinality(reached) IS DISTINCT FROM cardinality(s_stream) THEN
        INSERT INTO noetl.stream (tenant_id, organization_id, stream_id, shard, execution_id)
        SELECT p_tenant, p_organization, s.stream, s.shard, s.execution
        FROM unnest(s_stream, s_shard, s_execution) AS s (stream, shard, execution)
        WHERE NOT EXISTS (SELECT FROM noetl.stream AS known WHERE known.tenant_id = p_tenant
                          AND known.organization_id = p_organization AND known.stream_id = s.stream)
        ORDER BY s.stream COLLATE "C"
        ON CONFLICT DO NOTHING;
        SELECT array_agg(held.version ORDER BY s.place) INTO reached
        FROM unnest(s_stream) WITH ORDINALITY AS s (stream, place)
        CROSS JOIN LATERAL (
            SELECT known.version FROM noetl.stream AS known
            WHERE known.tenant_id = p_tenant AND known.organization_id = p_organization AND known.stream_id = s.stream
            FOR UPDATE
        ) AS held;
    END IF;
    IF cardinality(reached) IS DISTINCT FROM cardinality(s_stream) THEN
        RAISE serialization_failure USING MESSAGE = 'a stream of this append was removed meanwhile; try again';
    END IF;

    IF p_has_once THEN
        -- Facts that may stand once per execution; the unique indexes stop the losers of a race.
        FOR head IN
            SELECT DISTINCT e.append FROM unnest(events) AS e
            WHERE (e.event_type = 'command.issued' AND EXISTS (SELECT FROM noetl.known_event AS x
                       WHERE x.execution_id = e.execution_id AND x.command_id = e.command_id AND x.tenant_id = p_tenant
                       AND x.organization_id = p_organization AND x.event_type = 'command.issued'))
               OR (e.event_type = 'loop.done' AND EXISTS (SELECT FROM noetl.known_event AS x
                       WHERE x.execution_id = e.execution_id AND x.loop_id = e.loop_id AND x.tenant_id = p_tenant
                       AND x.organization_id = p_organization AND x.event_type = 'loop.done'))
               OR (e.event_type = 'loop.fanin.completed' AND EXISTS (SELECT FROM noetl.known_event AS x
                       WHERE x.execution_id = e.execution_id AND x.loop_id = e.loop_id AND x.tenant_id = p_tenant
                       AND x.organization_id = p_organization AND x.event_type = 'loop.fanin.completed'))
        LOOP
            verdict[head.append] := CASE WHEN verdict[head.append] = 0 THEN 4 ELSE verdict[head.append] END;
        END LOOP;
    END IF;
    IF p_has_payload THEN
        -- Shared with all appends, exclusive for a collector: it cannot condemn between this look and our commit.
        PERFORM pg_advisory_xact_lock_shared(noetl.payload_lock(p_tenant, p_organization));
        FOR head IN
            SELECT DISTINCT e.append FROM unnest(events) AS e
            JOIN noetl.payload_tombstone AS grave
              ON grave.tenant_id = p_tenant AND grave.organization_id = p_organization
             AND grave.sha256 IN (e.payload_sha256, e.fields_sha256)
        LOOP
            verdict[head.append] := CASE WHEN verdict[head.append] = 0 THEN 5 ELSE verdict[head.append] END;
        END LOOP;
    END IF;

    IF cardinality(p_work) > 0 AND a_group[many] > 1 THEN
        SELECT coalesce(array_agg(o.loser), '{}'), array_agg(o.winner) INTO losers, winners
        FROM noetl.overtaken(ending, f_group, f_table, f_execution, f_id, a_group, e_append, e_execution, e_stage,
                                e_frame, e_type, e_command) AS o;
    END IF;
    first := 1;
    WHILE first <= many LOOP
        last := first;
        sound := true;
        LOOP
            slot := a_stream[last];
            base[last] := reached[slot];
            IF verdict[last] = 0 AND a_expected[last] IS NOT NULL AND a_expected[last] <> reached[slot] THEN
                verdict[last] := 2;
            END IF;
            sound := sound AND verdict[last] = 0;
            EXIT WHEN last = many OR a_group[last + 1] <> a_group[first];
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
                shard_size[shard_slot] := shard_size[shard_slot] + a_size[number];
                reached[slot] := reached[slot] + a_size[number];
                written := written + 1;
            ELSIF verdict[number] = 0 THEN
                verdict[number] := 7;
            END IF;
        END LOOP;
        first := last + 1;
    END LOOP;

    IF written < many AND keyed > 0 THEN
        DELETE FROM noetl.idempotency_key AS known
        USING unnest(events) AS e
        WHERE known.tenant_id = p_tenant AND known.organization_id = p_organization AND known.key = e.idempotency_key
          AND verdict[e.append] <> 0 AND known.key = ANY (repeated.keys);
    END IF;

    IF written < many THEN
        -- A stream made above for an append that was refused has no events, so it must not stand.
        DELETE FROM noetl.stream AS known
        USING unnest(s_stream, reached) AS s (stream, version)
        WHERE known.tenant_id = p_tenant AND known.organization_id = p_organization
          AND known.stream_id = s.stream AND s.version = 0;
    END IF;

    IF written > 0 THEN
        -- Streams come sorted, so that the place of one among them is found by halving. Which ones is asked of the
        -- variable itself: of another relation's column no index would be asked.
        WITH own AS MATERIALIZED (SELECT s_stream AS names, reached AS versions)
        UPDATE noetl.stream AS known SET version = own.versions[width_bucket(known.stream_id, own.names)] FROM own
        WHERE known.tenant_id = p_tenant AND known.organization_id = p_organization
          AND known.stream_id = ANY (s_stream)
          AND known.version <> own.versions[width_bucket(known.stream_id, own.names)];

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
        SELECT e.execution_id, e.event_id, shard_base[s_shard[a_stream[e.append]] + 1] + place[e.append] + e.ordinal,
               base[e.append] + e.ordinal, e.event_time, now_at, e.causation_id, e.parent_execution_id, e.stage_id,
               e.frame_id, e.loop_id, e.current_index, e.schema_version, s_shard[a_stream[e.append]], p_tenant,
               p_organization, s_stream[a_stream[e.append]], e.aggregate_type, e.aggregate_id, e.event_type,
               e.schema_name, e.producer, e.correlation_id, e.idempotency_key, e.catalog_id, e.node_name, e.node_type,
               e.status, e.command_id, e.shard_id, e.payload_sha256, e.fields_sha256, e.error, e.meta, e.context,
               e.result, e.current_item, e.payload_ref, e.fields_ref
        FROM unnest(events) AS e WHERE verdict[e.append] = 0;

        IF cardinality(p_work) > 0 THEN
            PERFORM noetl.apply_work(
                p_tenant, p_organization, p_work, now_at,
                (SELECT array_agg(verdict[x.append] = 0 ORDER BY x.place)
                 FROM unnest(e_append) WITH ORDINALITY AS x (append, place)),
                e_execution, e_event, e_time, e_parent, e_stage, e_frame, e_loop, e_index, e_type, e_catalog, e_node,
                e_command, e_shard_id, e_meta, e_context, e_payload_ref);
        END IF;
    END IF;

    FOR number IN 1..many LOOP
        outcome := verdict[number];
        event_ids := NULL;
        IF outcome = 1 THEN
            SELECT e.stream_version - known.ordinal + 1, e.position - known.ordinal + 1, known.event_ids
            INTO first_version, first_position, event_ids
            FROM unnest(events) AS asked
            JOIN noetl.idempotency_key AS known ON known.tenant_id = p_tenant
                AND known.organization_id = p_organization AND known.key = asked.idempotency_key
            JOIN noetl.known_event AS e ON e.execution_id = known.execution_id AND e.event_id = known.event_id
                AND e.tenant_id = p_tenant AND e.organization_id = p_organization
            WHERE asked.append = number LIMIT 1;
        ELSE
            first_version := base[number] + 1;
            first_position := shard_base[s_shard[a_stream[number]] + 1] + place[number] + 1;
        END IF;
        RETURN NEXT;
    END LOOP;
END
$$;
COMMENT ON FUNCTION noetl.append_groups IS 'Decides each group of appends, numbers and writes those that stand.';
REVOKE ALL ON FUNCTION noetl.append_groups FROM PUBLIC;
