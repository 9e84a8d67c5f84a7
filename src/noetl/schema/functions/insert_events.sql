-- The arrays are by append; an append without a position was refused.
CREATE OR REPLACE FUNCTION noetl.insert_events(
    p_waits boolean, p_tenant text, p_organization text, p_now timestamptz, events noetl.new_event[], streams text[],
    shards smallint[], positions bigint[], versions bigint[]
) RETURNS void
    LANGUAGE plpgsql AS $$
BEGIN
    IF p_waits THEN
        INSERT INTO noetl.pending_event (
            -- begin generated: columns of an event
            execution_id, event_id, position, stream_version, event_time, ingest_time, causation_id,
            parent_execution_id, stage_id, frame_id, loop_id, current_index, schema_version, shard, tenant_id,
            organization_id, stream_id, aggregate_type, aggregate_id, event_type, schema_name, producer, correlation_id,
            idempotency_key, catalog_id, node_name, node_type, status, command_id, shard_id, payload_sha256,
            fields_sha256, error, meta, context, result, current_item, payload_ref, fields_ref
            -- end generated
        )
        SELECT
            -- begin generated: values of a new event
            e.execution_id, e.event_id, positions[e.append] + e.ordinal, versions[e.append] + e.ordinal, e.event_time,
            p_now, e.causation_id, e.parent_execution_id, e.stage_id, e.frame_id, e.loop_id, e.current_index,
            e.schema_version, shards[e.append], p_tenant, p_organization, streams[e.append], e.aggregate_type,
            e.aggregate_id, noetl.declared(e.event_type), e.schema_name, e.producer, e.correlation_id,
            e.idempotency_key, e.catalog_id, e.node_name, e.node_type, e.status, e.command_id, e.shard_id,
            e.payload_sha256, e.fields_sha256, e.error, e.meta, e.context, e.result, e.current_item, e.payload_ref,
            e.fields_ref
            -- end generated
        FROM unnest(events) AS e WHERE positions[e.append] IS NOT NULL;
    ELSE
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
            -- begin generated: values of a new event
            e.execution_id, e.event_id, positions[e.append] + e.ordinal, versions[e.append] + e.ordinal, e.event_time,
            p_now, e.causation_id, e.parent_execution_id, e.stage_id, e.frame_id, e.loop_id, e.current_index,
            e.schema_version, shards[e.append], p_tenant, p_organization, streams[e.append], e.aggregate_type,
            e.aggregate_id, noetl.declared(e.event_type), e.schema_name, e.producer, e.correlation_id,
            e.idempotency_key, e.catalog_id, e.node_name, e.node_type, e.status, e.command_id, e.shard_id,
            e.payload_sha256, e.fields_sha256, e.error, e.meta, e.context, e.result, e.current_item, e.payload_ref,
            e.fields_ref
            -- end generated
        FROM unnest(events) AS e WHERE positions[e.append] IS NOT NULL;
    END IF;
END
$$;
COMMENT ON FUNCTION noetl.insert_events IS 'Writes numbered events into the ledger, or among those that wait for it.';
REVOKE ALL ON FUNCTION noetl.insert_events FROM PUBLIC;
