-- The long way, which takes any number of groups; it runs in the rights and settings of `noetl.append`.
--
-- Lock order, the same for every caller: idempotency keys sorted, leases sorted, streams sorted, shard heads ascending,
-- and rows of stages under the heads of their execution's shard.
CREATE OR REPLACE FUNCTION noetl.append_groups(
    p_waits boolean, p_tenant text, p_organization text, p_key_ttl interval, p_has_once boolean, p_has_payload boolean,
    p_types text[], fences noetl.lease_fence[], appends noetl.new_append[], events noetl.new_event[]
) RETURNS TABLE (outcome integer, first_version bigint, first_position bigint, event_ids bigint[])
    LANGUAGE plpgsql AS $$
DECLARE
    many       integer := cardinality(appends);
    keyed      bigint;
    -- by append
    a_group integer[]; a_slot integer[]; a_expected bigint[]; a_size integer[]; a_stream text[]; a_shard smallint[];
    verdict    integer[] := array_fill(0, ARRAY[many]);
    base       bigint[] := array_fill(0::bigint, ARRAY[many]);
    place      bigint[] := array_fill(NULL::bigint, ARRAY[many]);
    -- by slot: the distinct streams
    s_stream text[]; s_shard smallint[]; s_execution bigint[];
    reached    bigint[];
    -- by shard, plus one
    shard_size bigint[] := array_fill(0::bigint, ARRAY[16]);
    shard_base bigint[] := array_fill(0::bigint, ARRAY[16]);
    repeated   record;
    head       record;
    now_at     timestamptz;
    written    integer := 0;
    slot       integer;
    lost       integer[] := '{}';
    first      integer;
    last       integer;
    sound      boolean;
    winners    integer[];
    losers     integer[] := '{}';
    standing   integer[] := '{}';
BEGIN
    SELECT array_agg(a.grp ORDER BY a.place), array_agg(a.slot ORDER BY a.place),
           array_agg(a.expected_version ORDER BY a.place), array_agg(a.size ORDER BY a.place),
           array_agg(a.stream_id ORDER BY a.place), array_agg(a.shard ORDER BY a.place), sum(a.keys)
    INTO a_group, a_slot, a_expected, a_size, a_stream, a_shard, keyed
    FROM unnest(appends) WITH ORDINALITY AS a (grp, slot, stream_id, shard, execution_id, expected_version, size, keys,
                                               digest, event_ids, leaves, place);
    SELECT array_agg(s.stream_id ORDER BY s.slot), array_agg(s.shard ORDER BY s.slot),
           array_agg(s.execution_id ORDER BY s.slot)
    INTO s_stream, s_shard, s_execution
    FROM (SELECT DISTINCT ON (a.slot) a.slot, a.stream_id, a.shard, a.execution_id FROM unnest(appends) AS a
          ORDER BY a.slot) AS s;

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

    IF p_types && ARRAY[
        -- begin generated: types that overrule holders
        'command.failed', 'execution.cancelled', 'execution.completed', 'execution.failed', 'playbook.completed',
        'playbook.failed', 'stage.closed', 'workflow.completed', 'workflow.failed'
        -- end generated
    ] THEN
        PERFORM noetl.lock_work(p_tenant, p_organization, fences, events);
    END IF;
    IF cardinality(fences) > 0 THEN
        SELECT coalesce(array_agg(broken.grp), '{}') INTO lost
        FROM noetl.broken_fences(p_tenant, p_organization, fences) AS broken (grp);
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
            WHERE
                -- begin generated: facts that stand once
                (e.event_type = 'command.issued' AND EXISTS (SELECT FROM noetl.known_event AS x
                    WHERE x.execution_id = e.execution_id AND x.command_id = e.command_id AND x.tenant_id = p_tenant
                    AND x.organization_id = p_organization AND x.event_type = 'command.issued'))
                OR (e.event_type = 'loop.done' AND EXISTS (SELECT FROM noetl.known_event AS x
                    WHERE x.execution_id = e.execution_id AND x.loop_id = e.loop_id AND x.tenant_id = p_tenant
                    AND x.organization_id = p_organization AND x.event_type = 'loop.done'))
                OR (e.event_type = 'loop.fanin.completed' AND EXISTS (SELECT FROM noetl.known_event AS x
                    WHERE x.execution_id = e.execution_id AND x.loop_id = e.loop_id AND x.tenant_id = p_tenant
                    AND x.organization_id = p_organization AND x.event_type = 'loop.fanin.completed'))
                -- end generated
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

    IF cardinality(p_types) > 0 AND a_group[many] > 1 THEN
        SELECT coalesce(array_agg(o.loser), '{}'), array_agg(o.winner) INTO losers, winners
        FROM noetl.overtaken(fences, a_group, events) AS o;
    END IF;
    first := 1;
    WHILE first <= many LOOP
        last := first;
        sound := true;
        LOOP
            slot := a_slot[last];
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
                slot := a_slot[number];
                base[number] := reached[slot];
                place[number] := shard_size[a_shard[number] + 1];
                shard_size[a_shard[number] + 1] := shard_size[a_shard[number] + 1] + a_size[number];
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

        SELECT taken.bases, taken.taken_at INTO shard_base, now_at
        FROM noetl.take_heads(p_waits, s_shard, shard_size) AS taken;
        FOR number IN 1..many LOOP
            place[number] := shard_base[a_shard[number] + 1] + place[number];
        END LOOP;
        PERFORM noetl.insert_events(p_waits, p_tenant, p_organization, now_at, events, a_stream, a_shard, place, base);
        PERFORM noetl.link_appends(p_waits, now_at, appends, place, base);
        IF cardinality(p_types) > 0 THEN
            PERFORM noetl.apply_work(p_tenant, p_organization, p_types, now_at, CASE WHEN written = many THEN events
                ELSE ARRAY(SELECT e FROM unnest(events) AS e WHERE verdict[e.append] = 0) END);
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
            first_position := place[number] + 1;
        END IF;
        RETURN NEXT;
    END LOOP;
END
$$;
COMMENT ON FUNCTION noetl.append_groups IS 'Decides each group of appends, numbers and writes those that stand.';
REVOKE ALL ON FUNCTION noetl.append_groups FROM PUBLIC;
