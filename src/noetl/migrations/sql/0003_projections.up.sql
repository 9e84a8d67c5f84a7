-- What projectors write: rows derived from events, checkpoints, snapshots and result references. All rebuildable.

CREATE TABLE noetl.projection (
    tenant_id       text COLLATE "C" NOT NULL,
    organization_id text COLLATE "C" NOT NULL,
    projection      text COLLATE "C" NOT NULL,
    row_id          text COLLATE "C" NOT NULL,
    execution_id    bigint NOT NULL,
    shard           smallint NOT NULL,
    first_position  bigint NOT NULL,
    last_position   bigint NOT NULL,
    fold_version    integer NOT NULL,
    status          text,
    checksum        text NOT NULL,
    state           json NOT NULL,
    updated_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (tenant_id, organization_id, projection, row_id)
) WITH (fillfactor = 80);
COMMENT ON TABLE noetl.projection IS 'One row per thing a fold follows, with the positions it was folded from and its checksum.';
CREATE INDEX idx_projection_execution ON noetl.projection (execution_id, projection);
CREATE INDEX idx_projection_shard ON noetl.projection (shard);
-- The status first: with the columns of the primary key in front, a planner without statistics takes this index for
-- looking up single rows, and reads all rows of the projection for each.
CREATE INDEX idx_projection_status
    ON noetl.projection (status, tenant_id, organization_id, projection, execution_id DESC);

CREATE TABLE noetl.projection_checkpoint (
    shard      smallint PRIMARY KEY,
    position   bigint NOT NULL DEFAULT 0,
    folds      json,
    failure    json,
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 10);
COMMENT ON TABLE noetl.projection_checkpoint IS 'How far each shard is projected; written with the rows.';
COMMENT ON COLUMN noetl.projection_checkpoint.folds IS
    'Versions of the folds that made the rows, by projection; null before the first. Rows of other folds are never mixed in.';
COMMENT ON COLUMN noetl.projection_checkpoint.failure IS 'Why the shard stands still at this position, if it does.';
INSERT INTO noetl.projection_checkpoint (shard) SELECT generate_series(0, 15);

CREATE VIEW noetl.execution WITH (security_invoker = true) AS
SELECT p.tenant_id, p.organization_id, p.execution_id,
       p.state ->> 'catalog_id' AS catalog_id, (p.state ->> 'parent_execution_id')::bigint AS parent_execution_id,
       p.status, p.state ->> 'last_event_type' AS last_event_type, p.state ->> 'last_node_name' AS last_node_name,
       (p.state ->> 'last_event_id')::bigint AS last_event_id,
       (p.state ->> 'start_time')::timestamptz AS start_time, (p.state ->> 'end_time')::timestamptz AS end_time,
       p.state ->> 'error' AS error, p.state -> 'state' AS state, p.shard, p.first_position, p.last_position,
       p.fold_version, p.checksum, p.updated_at
FROM noetl.projection AS p WHERE p.projection = 'execution';
COMMENT ON VIEW noetl.execution IS 'Executions and their state, as projected.';

CREATE TABLE noetl.snapshot (
    tenant_id          text COLLATE "C" NOT NULL,
    organization_id    text COLLATE "C" NOT NULL,
    aggregate_type     text COLLATE "C" NOT NULL,
    aggregate_id       text COLLATE "C" NOT NULL,
    version            bigint NOT NULL,
    fold_versions      json NOT NULL,
    upcaster_digest    text NOT NULL,
    payload_root       text NOT NULL,
    encryption_context text NOT NULL,
    checksum           text NOT NULL,
    payload_ref        json NOT NULL,
    payload_sha256     text COLLATE "C" NOT NULL,
    created_at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (tenant_id, organization_id, aggregate_type, aggregate_id, version)
);
COMMENT ON TABLE noetl.snapshot IS 'Folded states kept to shorten replays; used only if they validate, never the authority.';
CREATE INDEX idx_snapshot_payload ON noetl.snapshot (payload_sha256);

CREATE TABLE noetl.result_ref (
    tenant_id       text COLLATE "C" NOT NULL,
    organization_id text COLLATE "C" NOT NULL,
    ref_id          bigint NOT NULL,
    part            text COLLATE "C" NOT NULL DEFAULT 'payload',
    ref             text NOT NULL,
    execution_id    bigint NOT NULL,
    parent_ref_id   bigint,
    name            text,
    source_step     text,
    store_tier      text NOT NULL,
    physical_uri    text NOT NULL,
    content_type    text NOT NULL,
    bytes_size      bigint NOT NULL,
    sha256          text COLLATE "C" NOT NULL,
    compression     text NOT NULL,
    created_at      timestamptz NOT NULL,
    shard           smallint NOT NULL,
    PRIMARY KEY (tenant_id, organization_id, ref_id, part),
    CONSTRAINT result_ref_part_check CHECK (part IN ('payload', 'fields')),
    CONSTRAINT result_ref_store_tier_check CHECK (store_tier IN (
        'memory', 'kv', 'disk', 'object', 's3', 'gcs', 'azure', 'db', 'duckdb', 'eventlog', 'minio', 'pvc'))
);
COMMENT ON TABLE noetl.result_ref IS 'Where each payload that an event refers to lies. ref_id is the event''s id.';
COMMENT ON COLUMN noetl.result_ref.physical_uri IS 'Actual place: s3://bucket/key, gs://bucket/key, az://…, file path.';
CREATE INDEX idx_result_ref_execution ON noetl.result_ref (execution_id);
CREATE INDEX idx_result_ref_shard ON noetl.result_ref (shard);

CREATE TABLE noetl.event_archive (
    tenant_id          text COLLATE "C" NOT NULL,
    organization_id    text COLLATE "C" NOT NULL,
    partition          text COLLATE "C" NOT NULL,
    first_execution_id bigint NOT NULL,
    last_execution_id  bigint NOT NULL,
    events             bigint NOT NULL,
    executions         bigint NOT NULL,
    bounds             json NOT NULL,
    manifest_ref       json NOT NULL,
    manifest_sha256    text COLLATE "C" NOT NULL,
    archived_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    dropped_at         timestamptz,
    removed_at         timestamptz,
    PRIMARY KEY (tenant_id, organization_id, partition)
);
COMMENT ON TABLE noetl.event_archive IS
    'Which partitions of the ledger were moved to the payload store. Written with partition.archived, rebuildable from it.';
COMMENT ON COLUMN noetl.event_archive.bounds IS 'For each shard the first and the last position in the archive.';

-- Dropping a partition takes its index of payloads along, so the digests that archived events refer to stay here:
-- garbage collection must count them in the same transaction in which it condemns.
CREATE TABLE noetl.archive_payload (
    tenant_id       text COLLATE "C" NOT NULL,
    organization_id text COLLATE "C" NOT NULL,
    digest          bytea NOT NULL,
    partition       text COLLATE "C" NOT NULL,
    holds_events    boolean NOT NULL DEFAULT false,
    PRIMARY KEY (tenant_id, organization_id, digest, partition)
);
COMMENT ON TABLE noetl.archive_payload IS
    'Payloads an archive needs: those its events refer to, and (holds_events) the objects that hold the events.';
CREATE INDEX idx_archive_payload_partition ON noetl.archive_payload (tenant_id, organization_id, partition);

DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['projection', 'snapshot', 'result_ref', 'event_archive', 'archive_payload'] LOOP
        EXECUTE format('ALTER TABLE noetl.%I ENABLE ROW LEVEL SECURITY', name);
        EXECUTE format('ALTER TABLE noetl.%I FORCE ROW LEVEL SECURITY', name);
        EXECUTE format('CREATE POLICY scoped ON noetl.%I FOR SELECT TO noetl_runtime USING (tenant_id = '
                       '(SELECT noetl.tenant()) AND organization_id = (SELECT noetl.organization()))', name);
        EXECUTE format('GRANT SELECT ON noetl.%I TO noetl_runtime, noetl_projector, noetl_retention', name);
    END LOOP;
    FOREACH name IN ARRAY ARRAY['projection', 'snapshot', 'result_ref'] LOOP
        EXECUTE format('CREATE POLICY all_tenants ON noetl.%I TO noetl_projector USING (true)', name);
        EXECUTE format('GRANT INSERT, UPDATE, DELETE ON noetl.%I TO noetl_projector', name);
        EXECUTE format('CREATE POLICY kept ON noetl.%I FOR SELECT TO noetl_retention USING (true)', name);
    END LOOP;
END
$$;
CREATE POLICY recording ON noetl.event_archive TO noetl_runtime
    USING (tenant_id = (SELECT noetl.tenant()) AND organization_id = (SELECT noetl.organization()));
CREATE POLICY recording ON noetl.archive_payload TO noetl_runtime
    USING (tenant_id = (SELECT noetl.tenant()) AND organization_id = (SELECT noetl.organization()));
CREATE POLICY reading ON noetl.event_archive FOR SELECT TO noetl_projector, noetl_retention USING (true);
CREATE POLICY marking ON noetl.event_archive FOR UPDATE TO noetl_retention USING (true);
CREATE POLICY dropping ON noetl.event_archive TO current_user USING (true);
GRANT INSERT ON noetl.event_archive TO noetl_runtime;
GRANT UPDATE (first_execution_id, last_execution_id, events, executions, bounds, manifest_ref, manifest_sha256,
              archived_at, removed_at) ON noetl.event_archive TO noetl_runtime;
GRANT UPDATE (dropped_at) ON noetl.event_archive TO noetl_retention;
GRANT INSERT, DELETE ON noetl.archive_payload TO noetl_runtime;
GRANT SELECT ON noetl.projection_checkpoint TO noetl_runtime, noetl_projector, noetl_retention;
GRANT UPDATE ON noetl.projection_checkpoint TO noetl_projector;
GRANT SELECT ON noetl.execution TO noetl_runtime, noetl_projector;

CREATE POLICY dropping ON noetl.event FOR SELECT TO current_user USING (true);
CREATE POLICY dropping ON noetl.idempotency_key FOR SELECT TO current_user USING (true);
CREATE POLICY dropping ON noetl.stream FOR SELECT TO current_user USING (true);
CREATE POLICY forgetting ON noetl.stream FOR DELETE TO current_user USING (true);

-- A dropped partition stays dropped: its executions have ended, and facts added to them would escape both the archive
-- and the indexes that keep facts single. So the function that makes partitions is asked through this one.
ALTER FUNCTION noetl.ensure_event_partition_v1(bigint) RENAME TO make_event_partition_v1;
REVOKE ALL ON FUNCTION noetl.make_event_partition_v1(bigint) FROM noetl_runtime, noetl_retention;

CREATE FUNCTION noetl.ensure_event_partition_v1(p_execution_id bigint) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    name text := 'event_' || to_char(
        to_timestamp(((p_execution_id >> 22) + 1704067200000) / 1000.0) AT TIME ZONE 'UTC', 'YYYY_MM');
BEGIN
    IF p_execution_id >= 1099511627776 AND EXISTS (
        SELECT FROM noetl.event_archive AS a WHERE a.partition = name AND a.dropped_at IS NOT NULL
    ) THEN
        RAISE numeric_value_out_of_range USING MESSAGE = format(
            'execution %s belongs to %s, which was archived and dropped and takes no more events', p_execution_id, name);
    END IF;
    RETURN noetl.make_event_partition_v1(p_execution_id);
END
$$;
COMMENT ON FUNCTION noetl.ensure_event_partition_v1(bigint) IS
    'Makes the partition that an execution id belongs to, unless it was dropped.';
REVOKE ALL ON FUNCTION noetl.ensure_event_partition_v1(bigint) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION noetl.ensure_event_partition_v1(bigint) TO noetl_runtime, noetl_retention;

-- Waits for readers only briefly: whoever waits for the table's lock holds up every append behind it.
CREATE FUNCTION noetl.drop_event_partition_v1(p_partition text, p_ending text[]) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '2s' AS $$
DECLARE
    dropped  bigint;
    archived bigint;
    open_id  bigint;
BEGIN
    IF p_partition !~ '^event_[0-9]{4}_[0-9]{2}$' OR to_regclass('noetl.' || quote_ident(p_partition)) IS NULL THEN
        RAISE undefined_table USING MESSAGE = format('there is no droppable partition %s', p_partition);
    END IF;
    -- No append may slip in between the checks and the drop.
    EXECUTE format('LOCK TABLE noetl.%I IN SHARE MODE', p_partition);
    EXECUTE format('SELECT e.execution_id FROM noetl.%1$I AS e '
                   'GROUP BY e.tenant_id, e.organization_id, e.execution_id '
                   'HAVING NOT bool_or(e.event_type = ANY ($1)) LIMIT 1', p_partition) INTO open_id USING p_ending;
    IF open_id IS NOT NULL THEN
        RAISE object_in_use USING MESSAGE = format('execution %s in %s has not ended', open_id, p_partition);
    END IF;
    EXECUTE format('SELECT count(*) FROM noetl.%I', p_partition) INTO dropped;
    SELECT coalesce(sum(a.events), 0) INTO archived FROM noetl.event_archive AS a
    WHERE a.partition = p_partition AND a.removed_at IS NULL;
    IF dropped <> archived THEN
        RAISE object_in_use USING
            MESSAGE = format('%s holds %s events, of which %s are archived', p_partition, dropped, archived);
    END IF;
    EXECUTE format('SELECT k.execution_id FROM noetl.idempotency_key AS k WHERE k.expires_at > now() '
                   'AND k.execution_id IN (SELECT e.execution_id FROM noetl.%I AS e) LIMIT 1', p_partition)
        INTO open_id;
    IF open_id IS NOT NULL THEN
        RAISE object_in_use USING
            MESSAGE = format('idempotency keys of execution %s in %s are still valid', open_id, p_partition);
    END IF;
    EXECUTE format('ALTER TABLE noetl.event DETACH PARTITION noetl.%I', p_partition);
    EXECUTE format('DROP TABLE noetl.%I', p_partition);
    UPDATE noetl.event_archive AS a SET dropped_at = clock_timestamp() WHERE a.partition = p_partition;
    RETURN dropped;
END
$$;
COMMENT ON FUNCTION noetl.drop_event_partition_v1(text, text[]) IS
    'Drops a partition whose executions have all ended and whose events are all archived; refuses any other.';
REVOKE ALL ON FUNCTION noetl.drop_event_partition_v1(text, text[]) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION noetl.drop_event_partition_v1(text, text[]) TO noetl_retention;

CREATE FUNCTION noetl.forget_streams_v1(p_partition text, p_limit integer) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    forgotten bigint;
BEGIN
    IF to_regclass('noetl.' || quote_ident(p_partition)) IS NOT NULL OR NOT EXISTS (
        SELECT FROM noetl.event_archive AS a WHERE a.partition = p_partition AND a.dropped_at IS NOT NULL
    ) THEN
        RAISE object_in_use USING MESSAGE = format('%s is not a dropped partition', p_partition);
    END IF;
    DELETE FROM noetl.stream AS s USING (
        SELECT d.tenant_id, d.organization_id, d.stream_id FROM noetl.stream AS d
        JOIN (SELECT min(a.first_execution_id) AS first, max(a.last_execution_id) AS last
              FROM noetl.event_archive AS a WHERE a.partition = p_partition) AS held
          ON d.execution_id BETWEEN held.first AND held.last
        LIMIT p_limit
    ) AS old
    WHERE s.tenant_id = old.tenant_id AND s.organization_id = old.organization_id AND s.stream_id = old.stream_id;
    GET DIAGNOSTICS forgotten = ROW_COUNT;
    RETURN forgotten;
END
$$;
COMMENT ON FUNCTION noetl.forget_streams_v1(text, integer) IS
    'Deletes the heads of streams whose executions were dropped, some at a time.';
REVOKE ALL ON FUNCTION noetl.forget_streams_v1(text, integer) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION noetl.forget_streams_v1(text, integer) TO noetl_retention;
