CREATE TYPE noetl.new_event AS (
    -- begin generated: attributes of a new event
    append integer, ordinal integer, execution_id bigint, event_id bigint, event_time timestamptz, causation_id bigint,
    parent_execution_id bigint, stage_id bigint, frame_id bigint, loop_id bigint, current_index bigint,
    schema_version integer, aggregate_type text, aggregate_id text, event_type text, schema_name text, producer text,
    correlation_id text, idempotency_key text, catalog_id text, node_name text, node_type text, status text,
    command_id text, shard_id text, payload_sha256 text, fields_sha256 text, error text, meta json, context json,
    result json, current_item json, payload_ref json, fields_ref json
    -- end generated
);
COMMENT ON TYPE noetl.new_event IS 'An event before it is numbered, with the append it belongs to and its place in it.';
