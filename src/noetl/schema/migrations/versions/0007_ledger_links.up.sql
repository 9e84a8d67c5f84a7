-- A waiting event has no leaf, and the link it would become part of needs one.
DO $$
BEGIN
    IF EXISTS (SELECT FROM noetl.pending_event) THEN
        RAISE object_in_use USING MESSAGE = 'events wait for the materializer; let it write them before this migration';
    END IF;
END
$$;
ALTER TABLE noetl.shard ADD COLUMN chained_from bigint NOT NULL DEFAULT 1;
COMMENT ON COLUMN noetl.shard.chained_from IS
    'The first position with a link; events before it were recorded by a schema that made none.';
UPDATE noetl.shard SET chained_from = position + 1;
ALTER TYPE noetl.new_append ADD ATTRIBUTE leaves bytea;
COMMENT ON TYPE noetl.new_append IS
    'Events for the end of one stream; appends of one group stand or fall together. Slots number the distinct streams; leaves are the SHA-256 digests of the events, joined.';
-- One row per shard and call that wrote events there. Leaves outlive the events: archiving and erasure leave them alone.
CREATE TABLE noetl.ledger_link (
    shard          smallint NOT NULL,
    first_position bigint NOT NULL,
    events         integer NOT NULL,
    ingest_times   bytea NOT NULL,
    versions       bytea NOT NULL,
    leaves         bytea NOT NULL,
    link           bytea NOT NULL,
    PRIMARY KEY (shard, first_position)
) WITH (toast_tuple_target = 8160);
-- Digests do not compress, and up to two hundred of them stay in the row.
ALTER TABLE noetl.ledger_link ALTER COLUMN leaves SET STORAGE EXTERNAL;
COMMENT ON TABLE noetl.ledger_link IS
    'The chain of each shard: every call that wrote events, under a SHA-256 that covers the call and the link before it.';
COMMENT ON COLUMN noetl.ledger_link.ingest_times IS
    'Microseconds since 2000-01-01 UTC, 8 bytes each: one for all events, or one for each.';
COMMENT ON COLUMN noetl.ledger_link.versions IS
    'Stream versions as runs of 12 bytes: the first version of a run, and how many events it has.';
COMMENT ON COLUMN noetl.ledger_link.leaves IS 'The SHA-256 of each event, 32 bytes each, by position.';
COMMENT ON COLUMN noetl.ledger_link.link IS
    'SHA-256 of the previous link, the first position, the number of events, their times, versions and leaves.';
CREATE TABLE noetl.ledger_node (
    shard  smallint NOT NULL,
    level  smallint NOT NULL,
    number bigint NOT NULL,
    hash   bytea NOT NULL,
    PRIMARY KEY (shard, level, number)
);
COMMENT ON TABLE noetl.ledger_node IS
    'Roots of complete subtrees of each shard''s Merkle tree (RFC 9162), from 256 leaves on; made of links, and of nothing else.';
COMMENT ON COLUMN noetl.ledger_node.level IS 'The subtree has two to this power leaves.';
COMMENT ON COLUMN noetl.ledger_node.number IS 'Which of the subtrees of its level it is, from 0.';
CREATE TABLE noetl.ledger_head (
    shard     smallint NOT NULL,
    size      bigint NOT NULL,
    head      json NOT NULL,
    signed_at timestamptz NOT NULL,
    PRIMARY KEY (shard, size)
);
COMMENT ON TABLE noetl.ledger_head IS
    'Signed heads of the trees. Only a copy kept elsewhere binds whoever can write this table.';
CREATE TABLE noetl.ledger_identity (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    id       uuid NOT NULL DEFAULT gen_random_uuid()
);
COMMENT ON TABLE noetl.ledger_identity IS 'Which ledger this is: a signed head names it, so that heads of two are not confused.';
INSERT INTO noetl.ledger_identity DEFAULT VALUES;
-- Called while the head of the shard is held, so the last link is the one that the new one follows.
CREATE OR REPLACE FUNCTION noetl.add_link(
    p_shard smallint, p_first_position bigint, p_events integer, p_times bytea, p_versions bytea, p_leaves bytea
) RETURNS void
    LANGUAGE plpgsql AS $$
BEGIN
    IF octet_length(p_leaves) IS DISTINCT FROM 32 * p_events THEN
        RAISE data_exception USING MESSAGE = format('%s events came with %s bytes of leaves', p_events, octet_length(p_leaves));
    END IF;
    INSERT INTO noetl.ledger_link (shard, first_position, events, ingest_times, versions, leaves, link)
    VALUES (p_shard, p_first_position, p_events, p_times, p_versions, p_leaves, sha256(
        coalesce((SELECT known.link FROM noetl.ledger_link AS known
                  WHERE known.shard = p_shard AND known.first_position < p_first_position
                  ORDER BY known.first_position DESC LIMIT 1), decode(repeat('00', 32), 'hex'))
        || int8send(p_first_position) || int4send(p_events) || p_times || p_versions || p_leaves));
END
$$;
COMMENT ON FUNCTION noetl.add_link IS 'Binds events that a call wrote to a shard to everything that stands there before.';
REVOKE ALL ON FUNCTION noetl.add_link FROM PUBLIC;
GRANT EXECUTE ON FUNCTION noetl.add_link TO noetl_materializer;
CREATE TABLE noetl.pending_leaf (
    shard          smallint NOT NULL,
    first_position bigint NOT NULL,
    events         integer NOT NULL,
    leaves         bytea NOT NULL,
    PRIMARY KEY (shard, first_position)
) WITH (toast_tuple_target = 8160);
ALTER TABLE noetl.pending_leaf ALTER COLUMN leaves SET STORAGE EXTERNAL;
COMMENT ON TABLE noetl.pending_leaf IS
    'The leaves of events that wait for the materializer, by their place among the waiting ones of the shard.';
DROP FUNCTION noetl.materialize(text, text, smallint, bigint, text, uuid, json);
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
-- The only way into the ledger. One call takes many appends of one organization, decides each group of them, numbers
-- the survivors, writes them and changes the rows of open work they speak of; a caller can neither choose positions
-- nor change a row.
--
-- Outcomes: 0 written, 1 repeated, 2 wrong expected version, 3 key reused with other content, 4 recorded already,
-- 5 payload collected, 6 lease lost, 7 refused with its group.
CREATE OR REPLACE FUNCTION noetl.append(
    p_mode text, p_tenant text, p_organization text, p_key_ttl interval, p_has_once boolean, p_has_payload boolean,
    p_types text[], fences noetl.lease_fence[], appends noetl.new_append[], events noetl.new_event[]
) RETURNS TABLE (outcome integer, first_version bigint, first_position bigint, event_ids bigint[])
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
    SET enable_seqscan = off AS $$
DECLARE
    waits  boolean := p_mode = 'stream';
    own    noetl.new_append;
    fence  noetl.lease_fence;
    fresh  integer := 0;
    now_at timestamptz;
BEGIN
    PERFORM pg_advisory_xact_lock_shared(noetl.write_path_lock());
    IF (SELECT way.mode FROM noetl.write_path AS way) <> p_mode THEN
        RAISE SQLSTATE 'NE001' USING MESSAGE = format('events do not take the way of the %s now', p_mode);
    END IF;
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
            OR NOT p_types <@ ARRAY['command.completed', 'command.issued'];
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
        IF cardinality(fences) = 1 THEN
            PERFORM FROM noetl.command AS held
            WHERE held.tenant_id = p_tenant AND held.organization_id = p_organization
              AND held.execution_id = fence.execution_id AND held.command_id = fence.id
              AND noetl.fence_holds(fence, held.attempt, held.lease_token, held.lease_until) FOR UPDATE;
            EXIT short WHEN NOT FOUND;
        END IF;
        UPDATE noetl.stream AS known SET version = known.version + own.size
        WHERE known.tenant_id = p_tenant AND known.organization_id = p_organization
          AND known.stream_id = own.stream_id AND known.version = coalesce(own.expected_version, known.version)
        RETURNING known.version - own.size INTO first_version;
        EXIT short WHEN NOT FOUND;

        -- As `noetl.take_heads` does for many: the time is taken once the head is held.
        IF waits THEN
            UPDATE noetl.shard_outbox AS head
            SET position = head.position + own.size, last_ingest = greatest(head.last_ingest, clock_timestamp())
            WHERE head.shard = own.shard
            RETURNING head.position - own.size, head.last_ingest INTO first_position, now_at;
        ELSE
            UPDATE noetl.shard AS head
            SET position = head.position + own.size, last_ingest = greatest(head.last_ingest, clock_timestamp())
            WHERE head.shard = own.shard
            RETURNING head.position - own.size, head.last_ingest INTO first_position, now_at;
        END IF;
        PERFORM noetl.insert_events(waits, p_tenant, p_organization, now_at, events, ARRAY[own.stream_id],
                                    ARRAY[own.shard], ARRAY[first_position], ARRAY[first_version]);
        IF waits THEN
            INSERT INTO noetl.pending_leaf (shard, first_position, events, leaves)
            VALUES (own.shard, first_position + 1, own.size, own.leaves);
        ELSE
            PERFORM noetl.add_link(own.shard, first_position + 1, own.size, timestamptz_send(now_at),
                                   int8send(first_version + 1) || int4send(own.size), own.leaves);
        END IF;
        IF cardinality(p_types) > 0 THEN
            PERFORM noetl.apply_open_work(p_tenant, p_organization, p_types, now_at, events);
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
    RETURN QUERY SELECT * FROM noetl.append_groups(
        waits, p_tenant, p_organization, p_key_ttl, p_has_once, p_has_payload, p_types, fences, appends, events);
END
$$;
COMMENT ON FUNCTION noetl.append IS
    'Decides, numbers and writes appends of one organization; the only way in.';
REVOKE ALL ON FUNCTION noetl.append FROM PUBLIC;
GRANT EXECUTE ON FUNCTION noetl.append TO noetl_runtime;
-- policies.sql
ALTER TABLE noetl.ledger_head ENABLE ROW LEVEL SECURITY;
ALTER TABLE noetl.ledger_head FORCE ROW LEVEL SECURITY;
ALTER TABLE noetl.ledger_link ENABLE ROW LEVEL SECURITY;
ALTER TABLE noetl.ledger_link FORCE ROW LEVEL SECURITY;
ALTER TABLE noetl.ledger_node ENABLE ROW LEVEL SECURITY;
ALTER TABLE noetl.ledger_node FORCE ROW LEVEL SECURITY;
ALTER TABLE noetl.pending_leaf ENABLE ROW LEVEL SECURITY;
ALTER TABLE noetl.pending_leaf FORCE ROW LEVEL SECURITY;
-- Links span the tenants of a shard, so nobody who serves one organization sees them; nobody changes or removes any.
CREATE POLICY linking ON noetl.ledger_link FOR INSERT TO noetl_materializer, current_user WITH CHECK (true);
CREATE POLICY following ON noetl.ledger_link FOR SELECT TO noetl_projector, noetl_materializer, current_user USING (true);
CREATE POLICY waiting ON noetl.pending_leaf FOR INSERT TO current_user WITH CHECK (true);
CREATE POLICY moving ON noetl.pending_leaf TO noetl_materializer USING (true);
CREATE POLICY all_tenants ON noetl.ledger_node TO noetl_projector USING (true);
CREATE POLICY all_tenants ON noetl.ledger_head TO noetl_projector USING (true);
GRANT SELECT ON noetl.ledger_identity, noetl.ledger_link TO noetl_projector;
GRANT SELECT, INSERT ON noetl.ledger_head, noetl.ledger_node TO noetl_projector;
GRANT SELECT, DELETE ON noetl.pending_leaf TO noetl_materializer;
GRANT SELECT, INSERT ON noetl.ledger_link TO noetl_materializer;
