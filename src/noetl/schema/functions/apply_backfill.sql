CREATE OR REPLACE FUNCTION noetl.apply_backfill(said noetl.event) RETURNS void
    LANGUAGE plpgsql AS $$
DECLARE
    meta   jsonb := coalesce(said.meta::jsonb, '{}');
    own    bigint := substring(said.stream_id FROM 10)::bigint;
    first  integer := (meta ->> 'first')::integer;
    prefix text;
    keys   text;
BEGIN
    CASE said.event_type
    WHEN 'backfill.requested' THEN
        INSERT INTO noetl.backfill (tenant_id, organization_id, backfill_id, version, dag, job, generation,
            dataset_uuid, dataset_version, selection, keys_ref, total, queued, made, tasks, max_in_flight, status,
            requested_by, created_at, moved_at)
        VALUES (said.tenant_id, said.organization_id, own, said.stream_version, meta ->> 'dag', said.node_name,
            (meta ->> 'generation')::uuid, (meta ->> 'dataset_uuid')::uuid, (meta ->> 'dataset_version')::uuid,
            coalesce(said.context -> 'selection', '{}')::jsonb, said.payload_ref::jsonb, (meta ->> 'total')::integer,
            0, 0, 0, (meta ->> 'max_in_flight')::integer,
            CASE WHEN (meta ->> 'total')::integer = 0 THEN 'running' ELSE 'queueing' END,
            meta ->> 'requested_by', said.ingest_time, said.ingest_time)
        ON CONFLICT (tenant_id, organization_id, backfill_id) DO NOTHING;
        RETURN;
    WHEN 'backfill.queued' THEN
        -- Read once: within the statement the names of all partitions would be parsed again for each of them.
        prefix := said.context ->> 'prefix';
        keys := said.context ->> 'keys';
        INSERT INTO noetl.backfill_partition (tenant_id, organization_id, backfill_id, ordinal, partition_key)
        SELECT said.tenant_id, said.organization_id, own, first + k.place - 1, prefix || k.rest
        FROM string_to_table(keys, E'\n') WITH ORDINALITY AS k (rest, place);
        UPDATE noetl.backfill SET queued = queued + (meta ->> 'count')::integer,
            status = CASE WHEN status = 'queueing' AND queued + (meta ->> 'count')::integer >= total THEN 'running'
                          ELSE status END
        WHERE tenant_id = said.tenant_id AND organization_id = said.organization_id AND backfill_id = own;
    WHEN 'backfill.advanced' THEN
        UPDATE noetl.backfill SET made = (meta ->> 'made')::integer, tasks = tasks + (meta ->> 'tasks')::integer
        WHERE tenant_id = said.tenant_id AND organization_id = said.organization_id AND backfill_id = own;
    WHEN 'backfill.paused' THEN
        UPDATE noetl.backfill SET status = 'paused', error = said.error
        WHERE tenant_id = said.tenant_id AND organization_id = said.organization_id AND backfill_id = own;
    WHEN 'backfill.resumed' THEN
        UPDATE noetl.backfill SET status = CASE WHEN queued < total THEN 'queueing' ELSE 'running' END, error = said.error
        WHERE tenant_id = said.tenant_id AND organization_id = said.organization_id AND backfill_id = own;
    WHEN 'backfill.cancelled', 'backfill.completed', 'backfill.failed' THEN
        UPDATE noetl.backfill SET status = substring(said.event_type FROM 10), error = said.error,
            ended_at = said.ingest_time
        WHERE tenant_id = said.tenant_id AND organization_id = said.organization_id AND backfill_id = own;
        DELETE FROM noetl.backfill_partition
        WHERE tenant_id = said.tenant_id AND organization_id = said.organization_id AND backfill_id = own;
    ELSE
        RAISE case_not_found USING MESSAGE = format('no rule says what becomes of backfills after %s', said.event_type);
    END CASE;
    UPDATE noetl.backfill SET version = said.stream_version, moved_at = said.ingest_time
    WHERE tenant_id = said.tenant_id AND organization_id = said.organization_id AND backfill_id = own;
END
$$;
COMMENT ON FUNCTION noetl.apply_backfill IS 'Changes a backfill and its partitions as an event of its stream says.';
REVOKE ALL ON FUNCTION noetl.apply_backfill FROM PUBLIC;
