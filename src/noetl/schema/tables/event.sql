CREATE TABLE noetl.event (
    -- begin generated: columns of the ledger
    execution_id        bigint NOT NULL,
    event_id            bigint NOT NULL,
    position            bigint NOT NULL,
    stream_version      bigint NOT NULL,
    event_time          timestamptz NOT NULL,
    ingest_time         timestamptz NOT NULL,
    causation_id        bigint,
    parent_execution_id bigint,
    stage_id            bigint,
    frame_id            bigint,
    loop_id             bigint,
    current_index       bigint,
    schema_version      integer NOT NULL,
    shard               smallint NOT NULL,
    tenant_id           text COLLATE "C" NOT NULL,
    organization_id     text COLLATE "C" NOT NULL,
    stream_id           text COLLATE "C" NOT NULL,
    aggregate_type      text NOT NULL,
    aggregate_id        text NOT NULL,
    event_type          text COLLATE "C" NOT NULL,
    schema_name         text NOT NULL,
    producer            text NOT NULL,
    correlation_id      text,
    idempotency_key     text,
    catalog_id          text,
    node_name           text,
    node_type           text,
    status              text,
    command_id          text COLLATE "C",
    shard_id            text COLLATE "C",
    payload_sha256      text COLLATE "C",
    fields_sha256       text COLLATE "C",
    error               text,
    meta                json,
    context             json,
    result              json,
    current_item        json,
    payload_ref         json,
    fields_ref          json,
    -- end generated
    CONSTRAINT event_pkey PRIMARY KEY (execution_id, event_id, tenant_id, organization_id),
    CONSTRAINT event_references_not_data CHECK (
        coalesce(octet_length(meta::text), 0) + coalesce(octet_length(context::text), 0)
        + coalesce(octet_length(result::text), 0) + coalesce(octet_length(current_item::text), 0) <= 65536
    )
) PARTITION BY RANGE (execution_id);
COMMENT ON TABLE noetl.event IS 'The ledger: every accepted fact, in commit order per shard. Rows are never changed.';
-- Tenants may use equal ids, so every key of theirs carries tenant and organization.
CREATE UNIQUE INDEX uidx_event_shard_position ON noetl.event (shard, position, execution_id);
CREATE UNIQUE INDEX uidx_event_stream_version
    ON noetl.event (stream_id, stream_version, execution_id, tenant_id, organization_id);
CREATE INDEX idx_event_execution_position ON noetl.event (execution_id, position);
-- begin generated: indexes of facts that stand once
CREATE UNIQUE INDEX uidx_event_command_issued_command_id
    ON noetl.event (execution_id, command_id, tenant_id, organization_id) WHERE event_type = 'command.issued';
CREATE UNIQUE INDEX uidx_event_loop_done_loop_id
    ON noetl.event (execution_id, loop_id, tenant_id, organization_id) WHERE event_type = 'loop.done';
CREATE UNIQUE INDEX uidx_event_loop_fanin_completed_loop_id
    ON noetl.event (execution_id, loop_id, tenant_id, organization_id) WHERE event_type = 'loop.fanin.completed';
-- end generated
CREATE INDEX idx_event_loop_id_type ON noetl.event (execution_id, loop_id, event_type) WHERE loop_id IS NOT NULL;
CREATE INDEX idx_event_payload ON noetl.event (payload_sha256) WHERE payload_sha256 IS NOT NULL;
CREATE INDEX idx_event_fields ON noetl.event (fields_sha256) WHERE fields_sha256 IS NOT NULL;

-- Ids below this bound were never minted (the first minutes of 2024): they are the organizations' root ids, whose
-- partition is never dropped.
CREATE TABLE noetl.event_root (LIKE noetl.event INCLUDING ALL);
ALTER TABLE noetl.event ATTACH PARTITION noetl.event_root FOR VALUES FROM (MINVALUE) TO (1099511627776);
