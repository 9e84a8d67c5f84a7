CREATE OR REPLACE FUNCTION noetl.apply_partition(said noetl.event) RETURNS void
    LANGUAGE plpgsql AS $$
DECLARE
    meta jsonb := coalesce(said.meta::jsonb, '{}');
    gone boolean := said.event_type = 'partition.dropped';
BEGIN
    UPDATE noetl.partition_version SET current = false
    WHERE tenant_id = said.tenant_id AND organization_id = said.organization_id
      AND dataset_version = (meta ->> 'dataset_version')::uuid AND partition_key = meta ->> 'partition_key' AND current;
    INSERT INTO noetl.partition_version (tenant_id, organization_id, dataset_version, partition_key, version,
        dataset_uuid, current, dropped, manifest_ref, row_count, bytes, files, schema_hash, content_digest, task_id,
        attempt, committed_at)
    VALUES (said.tenant_id, said.organization_id, (meta ->> 'dataset_version')::uuid, meta ->> 'partition_key',
        said.stream_version, (meta ->> 'dataset_uuid')::uuid, true, gone, said.payload_ref::jsonb,
        coalesce((meta ->> 'rows')::bigint, 0), coalesce((meta ->> 'bytes')::bigint, 0),
        coalesce((meta ->> 'files')::integer, 0), meta ->> 'schema_hash', meta ->> 'content_digest',
        (meta ->> 'task_id')::uuid, (meta ->> 'attempt')::integer, said.ingest_time);
    PERFORM noetl.put_outbox(said,
        format('route:%s:%s:%s', (meta ->> 'dataset_version')::uuid, meta ->> 'partition_key', said.stream_version),
        'route_event',
        jsonb_build_object('dataset_uuid', (meta ->> 'dataset_uuid')::uuid, 'dataset_version',
                           (meta ->> 'dataset_version')::uuid, 'partition_key', meta ->> 'partition_key', 'version',
                           said.stream_version, 'dropped', gone), 0);
END
$$;
COMMENT ON FUNCTION noetl.apply_partition IS 'Makes what an event says of a partition its current version.';
REVOKE ALL ON FUNCTION noetl.apply_partition FROM PUBLIC;
