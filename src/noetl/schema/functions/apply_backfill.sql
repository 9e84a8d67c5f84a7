CREATE OR REPLACE FUNCTION noetl.apply_backfill(said noetl.event) RETURNS void
    LANGUAGE plpgsql AS $$
DECLARE
    meta   jsonb := coalesce(said.meta::jsonb, '{}');
    own    bigint := substring(said.stream_id FROM 10)::bigint;
    first  integer := (meta ->> 'first')::integer;
    prefix text;
    keys   text;
BEGIN
    IF said.event_type = 'backfill.requested' THEN
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
    END IF;
    IF said.event_type = 'backfill.queued' THEN
        -- Read once: within the statement the names of all partitions would be parsed again for each of them.
        prefix := said.context ->> 'prefix';
        keys := said.context ->> 'keys';
        INSERT INTO noetl.backfill_partition (tenant_id, organization_id, backfill_id, ordinal, partition_key)
        SELECT said.tenant_id, said.organization_id, own, first + k.place - 1, prefix || k.rest
        FROM string_to_table(keys, E'\n') WITH ORDINALITY AS k (rest, place);
    END IF;
    UPDATE noetl.backfill SET version = said.stream_version, moved_at = said.ingest_time,
        queued = queued + CASE said.event_type WHEN 'backfill.queued' THEN (meta ->> 'count')::integer ELSE 0 END,
        made = CASE said.event_type WHEN 'backfill.advanced' THEN (meta ->> 'made')::integer ELSE made END,
        tasks = tasks + CASE said.event_type WHEN 'backfill.advanced' THEN (meta ->> 'tasks')::integer ELSE 0 END,
        status = CASE said.event_type
            WHEN 'backfill.queued' THEN
                CASE WHEN status = 'queueing' AND queued + (meta ->> 'count')::integer >= total THEN 'running'
                     ELSE status END
            WHEN 'backfill.advanced' THEN status
            WHEN 'backfill.resumed' THEN CASE WHEN queued < total THEN 'queueing' ELSE 'running' END
            ELSE substring(said.event_type FROM 10) END,
        error = CASE said.event_type WHEN 'backfill.queued' THEN error WHEN 'backfill.advanced' THEN error
                                     ELSE said.error END,
        ended_at = CASE WHEN said.event_type IN ('backfill.cancelled', 'backfill.completed', 'backfill.failed')
                        THEN said.ingest_time ELSE ended_at END
    WHERE tenant_id = said.tenant_id AND organization_id = said.organization_id AND backfill_id = own;
    IF said.event_type IN ('backfill.cancelled', 'backfill.completed', 'backfill.failed') THEN
        DELETE FROM noetl.backfill_partition
        WHERE tenant_id = said.tenant_id AND organization_id = said.organization_id AND backfill_id = own;
    END IF;
END
$$;
COMMENT ON FUNCTION noetl.apply_backfill IS 'Changes a backfill and its partitions as an event of its stream says.';
REVOKE ALL ON FUNCTION noetl.apply_backfill FROM PUBLIC;
