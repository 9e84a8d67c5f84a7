-- Appends arrive packed: one array of events, one of appends and one of fences instead of a parameter for each column,
-- which client and server unpack in a fraction of the time. One append alone, which is what a lone step and a lone fact
-- are, takes a short way of few statements; whatever is unusual about it is left to the long way, which decides all.

CREATE TYPE noetl.lease_fence AS (
    grp integer, table_name text, execution_id bigint, id text, attempt integer, token uuid, mode smallint
);
COMMENT ON TYPE noetl.lease_fence IS 'What a group relies on; the modes are those of `noetl.broken_fences_v1`.';

CREATE TYPE noetl.new_append AS (
    grp integer, slot integer, stream_id text, shard smallint, execution_id bigint, expected_version bigint,
    size integer, keys integer, digest bytea, event_ids bigint[]
);
COMMENT ON TYPE noetl.new_append IS
    'Events for the end of one stream; appends of one group stand or fall together. Slots number the distinct streams.';

CREATE TYPE noetl.new_event AS (
    append integer, ordinal integer,
    execution_id bigint, event_id bigint, event_time timestamptz, causation_id bigint, parent_execution_id bigint,
    stage_id bigint, frame_id bigint, loop_id bigint, current_index bigint, schema_version integer,
    aggregate_type text, aggregate_id text, event_type text, schema_name text, producer text, correlation_id text,
    idempotency_key text, catalog_id text, node_name text, node_type text, status text, command_id text, shard_id text,
    payload_sha256 text, fields_sha256 text, error text,
    meta json, context json, result json, current_item json, payload_ref json, fields_ref json
);
COMMENT ON TYPE noetl.new_event IS 'An event before it is numbered, with the append it belongs to and its place in it.';

-- The long way, which takes any number of groups; it runs in the rights and settings of `noetl.append_v3`.
--
-- Lock order, the same for every caller: idempotency keys sorted, leases sorted, streams sorted, shard heads ascending,
-- and rows of stages under the heads of their execution's shard.
CREATE FUNCTION noetl.append_groups_v1(
    p_tenant text, p_organization text, p_key_ttl interval, p_has_once boolean, p_has_payload boolean, p_work text[],
    fences noetl.lease_fence[], appends noetl.new_append[], events noetl.new_event[]
) RETURNS TABLE (outcome integer, first_version bigint, first_position bigint, event_ids bigint[])
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
        PERFORM noetl.lock_work_v1(p_tenant, p_organization, ending, f_table, f_execution, f_id, e_execution, e_stage,
                                   e_frame, e_type, e_command);
    END IF;
    IF cardinality(fences) > 0 THEN
        SELECT coalesce(array_agg(broken.grp), '{}') INTO lost
        FROM noetl.broken_fences_v1(p_tenant, p_organization, f_group, f_table, f_execution, f_id, f_attempt, f_token,
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
            WHERE (e.event_type = 'command.issued' AND EXISTS (SELECT FROM noetl.event AS x
                       WHERE x.execution_id = e.execution_id AND x.command_id = e.command_id AND x.tenant_id = p_tenant
                       AND x.organization_id = p_organization AND x.event_type = 'command.issued'))
               OR (e.event_type = 'loop.done' AND EXISTS (SELECT FROM noetl.event AS x
                       WHERE x.execution_id = e.execution_id AND x.loop_id = e.loop_id AND x.tenant_id = p_tenant
                       AND x.organization_id = p_organization AND x.event_type = 'loop.done'))
               OR (e.event_type = 'loop.fanin.completed' AND EXISTS (SELECT FROM noetl.event AS x
                       WHERE x.execution_id = e.execution_id AND x.loop_id = e.loop_id AND x.tenant_id = p_tenant
                       AND x.organization_id = p_organization AND x.event_type = 'loop.fanin.completed'))
        LOOP
            verdict[head.append] := CASE WHEN verdict[head.append] = 0 THEN 4 ELSE verdict[head.append] END;
        END LOOP;
    END IF;
    IF p_has_payload THEN
        -- Shared with all appends, exclusive for a collector: it cannot condemn between this look and our commit.
        PERFORM pg_advisory_xact_lock_shared(noetl.payload_lock_v1(p_tenant, p_organization));
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
        FROM noetl.overtaken_v1(ending, f_group, f_table, f_execution, f_id, a_group, e_append, e_execution, e_stage,
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
            PERFORM noetl.apply_work_v1(
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
            JOIN noetl.event AS e ON e.execution_id = known.execution_id AND e.event_id = known.event_id
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
COMMENT ON FUNCTION noetl.append_groups_v1 IS 'Decides each group of appends, numbers and writes those that stand.';
REVOKE ALL ON FUNCTION noetl.append_groups_v1 FROM PUBLIC;

-- The only way into the ledger. One call takes many appends of one organization, decides each group of them, numbers
-- the survivors, writes them and changes the rows of open work they speak of; a caller can neither choose positions
-- nor change a row.
--
-- Outcomes: 0 written, 1 repeated, 2 wrong expected version, 3 key reused with other content, 4 recorded already,
-- 5 payload collected, 6 lease lost, 7 refused with its group.
CREATE FUNCTION noetl.append_v3(
    p_tenant text, p_organization text, p_key_ttl interval,
    -- whether facts are among the events that stand once per execution, and whether any refers to payloads
    p_has_once boolean, p_has_payload boolean,
    -- which rows of open work the events change: none for plain facts
    p_work text[],
    -- sorted by table and id
    fences noetl.lease_fence[],
    -- in the order of their groups
    appends noetl.new_append[],
    -- in append order
    events noetl.new_event[]
) RETURNS TABLE (outcome integer, first_version bigint, first_position bigint, event_ids bigint[])
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    -- Planning anew for every call would take longer than the call: all that varies is how much is in the arrays.
    SET plan_cache_mode = force_generic_plan
    -- A plan that is made while tables are empty is kept when they are not.
    SET enable_seqscan = off AS $$
DECLARE
    own    noetl.new_append;
    fence  noetl.lease_fence;
    fresh  integer := 0;
    now_at timestamptz;
BEGIN
    IF p_tenant IS NULL OR p_organization IS NULL OR p_tenant = '' OR p_organization = ''
       OR coalesce(noetl.tenant(), p_tenant) <> p_tenant
       OR coalesce(noetl.organization(), p_organization) <> p_organization THEN
        RAISE insufficient_privilege USING MESSAGE = 'append outside the tenant and organization of this transaction';
    END IF;
    PERFORM set_config('noetl.tenant', p_tenant, true), set_config('noetl.organization', p_organization, true);

    <<short>>
    BEGIN
        -- A step that ended well and what follows it, or plain facts.
        EXIT short WHEN cardinality(appends) <> 1 OR cardinality(fences) > 1 OR p_has_once OR p_has_payload
            OR NOT p_work <@ ARRAY['command.completed', 'command.issued'];
        own := appends[1];
        fence := fences[1];
        EXIT short WHEN fence.mode <> 1 OR fence.table_name <> 'command';

        IF own.keys > 0 THEN
            INSERT INTO noetl.idempotency_key (tenant_id, organization_id, key, content_digest, execution_id, event_id,
                                               ordinal, event_ids, expires_at)
            SELECT p_tenant, p_organization, e.idempotency_key, own.digest, e.execution_id, e.event_id, e.ordinal,
                   own.event_ids, now() + p_key_ttl
            FROM unnest(events) AS e WHERE e.idempotency_key IS NOT NULL ORDER BY e.idempotency_key COLLATE "C"
            ON CONFLICT DO NOTHING;
            GET DIAGNOSTICS fresh = ROW_COUNT;
            EXIT short WHEN fresh < own.keys;
        END IF;
        IF fence.mode = 1 THEN
            PERFORM FROM noetl.command AS held
            WHERE held.tenant_id = p_tenant AND held.organization_id = p_organization
              AND held.execution_id = fence.execution_id AND held.command_id = fence.id
              AND held.attempt = fence.attempt AND held.lease_token = fence.token
              AND held.lease_until > clock_timestamp() FOR UPDATE;
            EXIT short WHEN NOT FOUND;
        END IF;
        UPDATE noetl.stream AS known SET version = known.version + own.size
        WHERE known.tenant_id = p_tenant AND known.organization_id = p_organization
          AND known.stream_id = own.stream_id AND known.version = coalesce(own.expected_version, known.version)
        RETURNING known.version - own.size INTO first_version;
        EXIT short WHEN NOT FOUND;

        -- The time is taken once the head is held: it never runs backwards within a shard.
        UPDATE noetl.shard AS head SET position = head.position + own.size,
                                       last_ingest = greatest(head.last_ingest, clock_timestamp())
        WHERE head.shard = own.shard
        RETURNING head.position - own.size, head.last_ingest INTO first_position, now_at;
        INSERT INTO noetl.event (
            execution_id, event_id, position, stream_version, event_time, ingest_time, causation_id,
            parent_execution_id, stage_id, frame_id, loop_id, current_index, schema_version, shard, tenant_id,
            organization_id, stream_id, aggregate_type, aggregate_id, event_type, schema_name, producer,
            correlation_id, idempotency_key, catalog_id, node_name, node_type, status, command_id, shard_id,
            payload_sha256, fields_sha256, error, meta, context, result, current_item, payload_ref, fields_ref)
        SELECT e.execution_id, e.event_id, first_position + e.ordinal, first_version + e.ordinal, e.event_time, now_at,
               e.causation_id, e.parent_execution_id, e.stage_id, e.frame_id, e.loop_id, e.current_index,
               e.schema_version, own.shard, p_tenant, p_organization, own.stream_id, e.aggregate_type, e.aggregate_id,
               e.event_type, e.schema_name, e.producer, e.correlation_id, e.idempotency_key, e.catalog_id, e.node_name,
               e.node_type, e.status, e.command_id, e.shard_id, e.payload_sha256, e.fields_sha256, e.error, e.meta,
               e.context, e.result, e.current_item, e.payload_ref, e.fields_ref
        FROM unnest(events) AS e;
        -- The rules of `noetl.apply_work_v1` for these two types.
        IF 'command.completed' = ANY (p_work) THEN
            DELETE FROM noetl.command AS done USING unnest(events) AS e
            WHERE done.tenant_id = p_tenant AND done.organization_id = p_organization
              AND done.execution_id = e.execution_id AND done.command_id = e.command_id
              AND e.event_type = 'command.completed';
        END IF;
        IF 'command.issued' = ANY (p_work) THEN
            INSERT INTO noetl.command (tenant_id, organization_id, execution_id, command_id, step_name, tool_kind,
                status, attempt, worker, lease_token, lease_seconds, lease_until, last_heartbeat, available_at,
                stage_id, loop_id, child_execution_id, issued_event_id)
            SELECT p_tenant, p_organization, e.execution_id, e.command_id, e.node_name, e.meta ->> 'tool_kind',
                   CASE WHEN said.worker IS NOT NULL THEN 'CLAIMED'
                        WHEN said.child_execution_id IS NOT NULL THEN 'SUSPENDED' ELSE 'PENDING' END,
                   coalesce(said.attempt, 0), said.worker, said.lease_token, said.lease_seconds,
                   CASE WHEN said.worker IS NOT NULL THEN now_at + make_interval(secs => said.lease_seconds) END,
                   CASE WHEN said.worker IS NOT NULL THEN now_at END,
                   now_at, e.stage_id, e.loop_id, said.child_execution_id, e.event_id
            FROM unnest(events) AS e, json_to_record(e.meta) AS said (worker text, attempt integer, lease_token uuid,
                lease_seconds double precision, child_execution_id bigint)
            WHERE e.event_type = 'command.issued' AND NOT EXISTS (
                SELECT FROM unnest(events) AS ended
                WHERE ended.event_type = 'command.completed' AND ended.command_id = e.command_id);
        END IF;
        outcome := 0;
        first_version := first_version + 1;
        first_position := first_position + 1;
        RETURN NEXT;
        RETURN;
    END;

    IF fresh > 0 THEN
        -- The short way took keys and then met something unusual: the long way begins as if nothing had been.
        DELETE FROM noetl.idempotency_key AS known
        WHERE known.tenant_id = p_tenant AND known.organization_id = p_organization
          AND known.expires_at = now() + p_key_ttl AND known.event_id = ANY (own.event_ids)
          AND known.key IN (SELECT e.idempotency_key FROM unnest(events) AS e);
    END IF;
    RETURN QUERY SELECT * FROM noetl.append_groups_v1(
        p_tenant, p_organization, p_key_ttl, p_has_once, p_has_payload, p_work, fences, appends, events);
END
$$;
COMMENT ON FUNCTION noetl.append_v3 IS 'Decides, numbers and writes appends of one organization; the only way in.';
REVOKE ALL ON FUNCTION noetl.append_v3 FROM PUBLIC;
GRANT EXECUTE ON FUNCTION noetl.append_v3 TO noetl_runtime;

DROP FUNCTION noetl.append_v2;
