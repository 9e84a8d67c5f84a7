-- The durability boundary can be moved: in the write path `stream` a change commits its rows and its events as waiting
-- ones; they are published, and reach the ledger through the materializer alone.

CREATE TABLE noetl.write_path (
    one        boolean PRIMARY KEY DEFAULT true CHECK (one),
    mode       text NOT NULL CHECK (mode IN ('ledger', 'stream', 'draining')),
    changed_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON TABLE noetl.write_path IS
    'How events reach the ledger now: by appends themselves, through the stream, or not at all for the moment of a change.';
INSERT INTO noetl.write_path (mode) VALUES ('ledger');

CREATE FUNCTION noetl.write_path_lock_v1() RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN 7812331904467701;
COMMENT ON FUNCTION noetl.write_path_lock_v1 IS
    'The advisory lock that every append shares and a change of the write path takes alone.';

CREATE TABLE noetl.shard_outbox (
    shard       smallint PRIMARY KEY,
    position    bigint NOT NULL DEFAULT 0,
    last_ingest timestamptz NOT NULL DEFAULT '-infinity'
) WITH (fillfactor = 10);
COMMENT ON TABLE noetl.shard_outbox IS 'The head of each shard''s waiting events, numbered in the order of their commits.';
INSERT INTO noetl.shard_outbox (shard) SELECT generate_series(0, 15);

CREATE TABLE noetl.pending_event (LIKE noetl.event INCLUDING ALL);
COMMENT ON TABLE noetl.pending_event IS
    'Events that are decided and not in the ledger yet; their position is the place among the waiting ones of the shard.';

CREATE TABLE noetl.materialized (
    stream_name    text NOT NULL,
    shard          smallint NOT NULL,
    sequence       bigint NOT NULL DEFAULT 0,
    stream_created text NOT NULL,
    written        bigint NOT NULL DEFAULT 0,
    updated_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (stream_name, shard)
);
COMMENT ON TABLE noetl.materialized IS 'Up to which sequence of the stream the events of a shard are in the ledger.';

CREATE TABLE noetl.divergence (
    shard      smallint PRIMARY KEY,
    sequence   bigint NOT NULL DEFAULT 0,
    seen       bigint NOT NULL DEFAULT 0,
    equal      bigint NOT NULL DEFAULT 0,
    missing    bigint NOT NULL DEFAULT 0,
    different  bigint NOT NULL DEFAULT 0,
    redelivered bigint NOT NULL DEFAULT 0,
    first      jsonb,
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON TABLE noetl.divergence IS
    'What a materializer in shadow found: rows it would have written alike, rows the ledger lacks, and rows that differ.';

-- Those who decide look at both; a reader of the ledger looks at the ledger.
CREATE VIEW noetl.known_event WITH (security_invoker = true) AS
    SELECT * FROM noetl.event UNION ALL SELECT * FROM noetl.pending_event;
COMMENT ON VIEW noetl.known_event IS 'Every decided event, in the ledger or on its way there.';

ALTER TABLE noetl.pending_event ENABLE ROW LEVEL SECURITY;
ALTER TABLE noetl.pending_event FORCE ROW LEVEL SECURITY;
CREATE POLICY scoped ON noetl.pending_event TO noetl_runtime, current_user
    USING (tenant_id = noetl.tenant() AND organization_id = noetl.organization());
CREATE POLICY all_tenants ON noetl.pending_event FOR SELECT
    TO noetl_projector, noetl_retention, noetl_reaper, noetl_relay, noetl_materializer USING (true);
CREATE POLICY moving ON noetl.pending_event FOR DELETE TO noetl_materializer USING (true);
CREATE POLICY materialized ON noetl.event FOR INSERT TO noetl_materializer WITH CHECK (true);
CREATE POLICY materialized ON noetl.stream TO noetl_materializer USING (true) WITH CHECK (true);

GRANT SELECT ON noetl.pending_event, noetl.known_event
    TO noetl_runtime, noetl_projector, noetl_retention, noetl_reaper, noetl_relay, noetl_materializer;
GRANT SELECT ON noetl.write_path, noetl.shard_outbox, noetl.materialized, noetl.divergence
    TO noetl_runtime, noetl_projector, noetl_retention, noetl_relay, noetl_materializer;
GRANT DELETE ON noetl.pending_event TO noetl_materializer;
GRANT INSERT ON noetl.event TO noetl_materializer;
GRANT SELECT, INSERT, UPDATE ON noetl.stream TO noetl_materializer;
GRANT UPDATE ON noetl.shard, noetl.shard_outbox TO noetl_materializer;
GRANT INSERT, UPDATE, DELETE ON noetl.materialized, noetl.divergence TO noetl_materializer;
GRANT EXECUTE ON FUNCTION noetl.ensure_event_partition_v1(bigint) TO noetl_materializer;

-- What the ledger's unique indexes refuse must not wait for it either.
CREATE FUNCTION noetl.refuse_recorded_v1() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM came AS c JOIN noetl.event AS known ON known.execution_id = c.execution_id
               AND known.event_id = c.event_id AND known.tenant_id = c.tenant_id
               AND known.organization_id = c.organization_id) THEN
        RAISE unique_violation USING MESSAGE = 'an event of this id is in the ledger', CONSTRAINT = 'event_pkey';
    END IF;
    IF EXISTS (SELECT FROM came AS c JOIN noetl.event AS known ON known.execution_id = c.execution_id
               AND known.command_id = c.command_id AND known.tenant_id = c.tenant_id
               AND known.organization_id = c.organization_id AND known.event_type = 'command.issued'
               WHERE c.event_type = 'command.issued') THEN
        RAISE unique_violation USING MESSAGE = 'this command is issued', CONSTRAINT = 'uidx_event_command_issued_command_id';
    END IF;
    IF EXISTS (SELECT FROM came AS c JOIN noetl.event AS known ON known.execution_id = c.execution_id
               AND known.loop_id = c.loop_id AND known.tenant_id = c.tenant_id
               AND known.organization_id = c.organization_id AND known.event_type = c.event_type
               WHERE c.event_type IN ('loop.done', 'loop.fanin.completed')) THEN
        RAISE unique_violation USING MESSAGE = 'this loop is done', CONSTRAINT = 'uidx_event_loop_done_loop_id';
    END IF;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION noetl.refuse_recorded_v1 IS 'Refuses waiting events that the ledger could not take.';
REVOKE ALL ON FUNCTION noetl.refuse_recorded_v1 FROM PUBLIC;
CREATE TRIGGER refuse_recorded AFTER INSERT ON noetl.pending_event REFERENCING NEW TABLE AS came
    FOR EACH STATEMENT EXECUTE FUNCTION noetl.refuse_recorded_v1();

-- The functions around an append are changed by their text, which is the same in every database of this revision. Those
-- that look for an event look at waiting ones too; from the append itself a twin is made that leaves events waiting.
DO $$
DECLARE
    change record;
    body   text;
    twin   text;
BEGIN
    FOR change IN
        SELECT unnest(ARRAY['append_groups_v1', 'apply_alerts_v1', 'apply_changes_v1', 'apply_lineage_v1', 'apply_pins_v1',
            'apply_pipelines_v1', 'apply_queries_v1', 'apply_views_v1', 'schedule_facts_v1', 'take_curated_answer_v1']) AS name
    LOOP
        body := pg_get_functiondef(('noetl.' || change.name)::regproc);
        IF body !~ '(FROM|JOIN) noetl\.event AS' THEN
            RAISE 'the text of % is not the one of revision 0012', change.name;
        END IF;
        EXECUTE regexp_replace(body, '(FROM|JOIN) noetl\.event AS', '\1 noetl.known_event AS', 'g');
    END LOOP;

    FOR change IN
        SELECT * FROM (VALUES ('append_groups_v1', 'append_pending_groups_v1'), ('append_v3', 'append_pending_v1'))
            AS c (name, twin)
    LOOP
        body := pg_get_functiondef(('noetl.' || change.name)::regproc);
        twin := replace(replace(replace(body, 'noetl.' || change.name || '(', 'noetl.' || change.twin || '('),
                                'INSERT INTO noetl.event (', 'INSERT INTO noetl.pending_event ('),
                        'noetl.shard AS', 'noetl.shard_outbox AS');
        twin := replace(twin, 'noetl.append_groups_v1(', 'noetl.append_pending_groups_v1(');
        IF change.name = 'append_v3' THEN
            EXECUTE replace(body, '    IF p_tenant IS NULL OR', $new$    PERFORM pg_advisory_xact_lock_shared(noetl.write_path_lock_v1());
    IF (SELECT way.mode FROM noetl.write_path AS way) <> 'ledger' THEN
        RAISE SQLSTATE 'NE001' USING MESSAGE = 'events do not go straight to the ledger now';
    END IF;
    IF p_tenant IS NULL OR$new$);
            twin := replace(twin, '    IF p_tenant IS NULL OR', $new$    PERFORM pg_advisory_xact_lock_shared(noetl.write_path_lock_v1());
    IF (SELECT way.mode FROM noetl.write_path AS way) <> 'stream' THEN
        RAISE SQLSTATE 'NE001' USING MESSAGE = 'events do not go through the stream now';
    END IF;
    IF p_tenant IS NULL OR$new$);
        END IF;
        EXECUTE twin;
        EXECUTE format('REVOKE ALL ON FUNCTION noetl.%I FROM PUBLIC', change.twin);
    END LOOP;
END
$$;
COMMENT ON FUNCTION noetl.append_pending_groups_v1 IS 'Decides each group of appends and leaves those that stand waiting.';
COMMENT ON FUNCTION noetl.append_pending_v1 IS 'Decides appends of one organization; their events wait for the materializer.';
GRANT EXECUTE ON FUNCTION noetl.append_pending_v1 TO noetl_runtime;

-- Changes the way of all events. To `draining` at any time; from there on to another once nothing waits.
CREATE FUNCTION noetl.change_write_path_v1(p_mode text) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    now_is text;
BEGIN
    PERFORM pg_advisory_xact_lock(noetl.write_path_lock_v1());
    SELECT way.mode INTO now_is FROM noetl.write_path AS way FOR UPDATE;
    IF now_is = p_mode THEN
        RETURN now_is;
    END IF;
    IF p_mode <> 'draining' AND EXISTS (SELECT FROM noetl.shard_outbox AS o WHERE noetl.waiting_v1(o.shard)) THEN
        RETURN now_is;
    END IF;
    IF p_mode = 'stream' THEN
        UPDATE noetl.shard_outbox AS o SET last_ingest = greatest(o.last_ingest, s.last_ingest)
        FROM noetl.shard AS s WHERE s.shard = o.shard;
    END IF;
    UPDATE noetl.write_path SET mode = p_mode, changed_at = clock_timestamp();
    RETURN p_mode;
END
$$;
COMMENT ON FUNCTION noetl.change_write_path_v1 IS 'Sets how events reach the ledger and returns how they do now.';

CREATE FUNCTION noetl.waiting_v1(p_shard smallint) RETURNS boolean
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT EXISTS (SELECT FROM noetl.pending_event AS p WHERE p.shard = p_shard)
$$;
COMMENT ON FUNCTION noetl.waiting_v1 IS 'Whether events of the shard wait, of any tenant.';
CREATE FUNCTION noetl.waits_upto_v1(p_shard smallint, p_position bigint) RETURNS boolean
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT EXISTS (SELECT FROM noetl.pending_event AS p WHERE p.shard = p_shard AND p.position <= p_position)
$$;
COMMENT ON FUNCTION noetl.waits_upto_v1 IS 'Whether events of the shard wait, of any tenant, up to a place among them.';
CREATE POLICY counted ON noetl.pending_event FOR SELECT TO current_user USING (true);
REVOKE ALL ON FUNCTION noetl.change_write_path_v1, noetl.waiting_v1, noetl.waits_upto_v1 FROM PUBLIC;
GRANT EXECUTE ON FUNCTION noetl.change_write_path_v1, noetl.waiting_v1, noetl.waits_upto_v1 TO noetl_runtime;

-- Writes what came from the stream, in the rights of the materializer. Rows come as they stand in the ledger, without
-- position; a fact also without version and time of ingestion, which it gets here. Whatever waits before a row that is
-- written is written before it, so that a stream's versions and a shard's times ascend with the positions.
--
-- Lock order: the lease, streams of facts sorted, the outbox head, the shard head.
CREATE FUNCTION noetl.materialize_v1(
    p_stream text, p_created text, p_shard smallint, p_sequence bigint, p_token uuid, p_rows json
) RETURNS TABLE (written bigint, repeated bigint, last_position bigint)
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
    came     noetl.event[];
    fresh    noetl.event[];
    own      noetl.event[];
    versions bigint[];
    times    timestamptz[];
    upto     bigint;
    facts    boolean;
    behind   boolean := false;
    floor_at timestamptz;
    head     bigint;
BEGIN
    PERFORM FROM noetl.shard_lease AS held WHERE held.role = 'materializer' AND held.shard = p_shard
        AND held.lease_token = p_token AND held.lease_until > clock_timestamp() FOR KEY SHARE;
    IF NOT FOUND THEN
        RAISE SQLSTATE 'NE002' USING MESSAGE = format('shard %s belongs to another materializer now', p_shard);
    END IF;
    SELECT coalesce(array_agg(r ORDER BY x.place), '{}') INTO came
    FROM json_array_elements(p_rows) WITH ORDINALITY AS x (body, place),
         LATERAL json_populate_record(NULL::noetl.event, x.body) AS r;
    -- Delivered again, or twice in one batch: the first stands.
    SELECT coalesce(array_agg(came[first.n] ORDER BY first.n), '{}') INTO fresh
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
        SELECT ROW (p.*)::noetl.event AS r, p.position AS place, (SELECT min(a.n) FROM asked AS a WHERE a.upto >= p.position) AS before
        FROM noetl.pending_event AS p WHERE p.shard = p_shard AND p.position <= (SELECT max(a.upto) FROM asked AS a)
    ), taken AS (
        SELECT w.before AS n, 0 AS class, w.place, w.r FROM waiting AS w
        UNION ALL
        SELECT n, 1, 0, fresh[n] FROM generate_subscripts(fresh, 1) AS n
        WHERE NOT EXISTS (
            SELECT FROM waiting AS w WHERE (w.r).execution_id = (fresh[n]).execution_id AND (w.r).event_id = (fresh[n]).event_id
               AND (w.r).tenant_id = (fresh[n]).tenant_id AND (w.r).organization_id = (fresh[n]).organization_id)
    ), told AS (
        SELECT t.r, row_number() OVER way AS nth,
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
           array_agg(t.so_far ORDER BY t.nth), (SELECT max(a.upto) FROM asked AS a)
    INTO own, versions, times, upto FROM told AS t;
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
            execution_id, event_id, position, stream_version, event_time, ingest_time, causation_id,
            parent_execution_id, stage_id, frame_id, loop_id, current_index, schema_version, shard, tenant_id,
            organization_id, stream_id, aggregate_type, aggregate_id, event_type, schema_name, producer,
            correlation_id, idempotency_key, catalog_id, node_name, node_type, status, command_id, shard_id,
            payload_sha256, fields_sha256, error, meta, context, result, current_item, payload_ref, fields_ref)
        SELECT r.execution_id, r.event_id, head - written + n, versions[n], r.event_time, times[n], r.causation_id,
               r.parent_execution_id, r.stage_id, r.frame_id, r.loop_id, r.current_index, r.schema_version, p_shard,
               r.tenant_id, r.organization_id, r.stream_id, r.aggregate_type, r.aggregate_id, r.event_type,
               r.schema_name, r.producer, r.correlation_id, r.idempotency_key, r.catalog_id, r.node_name, r.node_type,
               r.status, r.command_id, r.shard_id, r.payload_sha256, r.fields_sha256, r.error, r.meta, r.context,
               r.result, r.current_item, r.payload_ref, r.fields_ref
        FROM generate_subscripts(own, 1) AS n, LATERAL (SELECT (own[n]).*) AS r;
        IF facts THEN
            UPDATE noetl.stream AS known SET version = greatest(known.version, reached.version)
            FROM (SELECT (own[n]).tenant_id, (own[n]).organization_id, (own[n]).stream_id, max(versions[n]) AS version
                  FROM generate_subscripts(own, 1) AS n WHERE (own[n]).stream_version IS NULL GROUP BY 1, 2, 3) AS reached
            WHERE known.tenant_id = reached.tenant_id AND known.organization_id = reached.organization_id
              AND known.stream_id = reached.stream_id;
        END IF;
        DELETE FROM noetl.pending_event AS p WHERE p.shard = p_shard AND p.position <= upto;
    END IF;
    INSERT INTO noetl.materialized AS m (stream_name, shard, sequence, stream_created, written)
    VALUES (p_stream, p_shard, p_sequence, p_created, materialize_v1.written)
    ON CONFLICT (stream_name, shard) DO UPDATE SET updated_at = clock_timestamp(), written = m.written + excluded.written,
        stream_created = excluded.stream_created, sequence = CASE WHEN m.stream_created = excluded.stream_created
            THEN greatest(m.sequence, excluded.sequence) ELSE excluded.sequence END;
    RETURN NEXT;
END
$$;
COMMENT ON FUNCTION noetl.materialize_v1 IS 'Writes a batch of a shard''s stream into the ledger; a row that stands is left.';
REVOKE ALL ON FUNCTION noetl.materialize_v1 FROM PUBLIC;
GRANT EXECUTE ON FUNCTION noetl.materialize_v1 TO noetl_materializer;
