CREATE TABLE noetl.frame (
    tenant_id       text COLLATE "C" NOT NULL,
    organization_id text COLLATE "C" NOT NULL,
    execution_id    bigint NOT NULL,
    frame_id        bigint NOT NULL,
    stage_id        bigint NOT NULL,
    loop_id         bigint,
    shard_id        text COLLATE "C",
    status          text NOT NULL CHECK (status IN ('FREE', 'LEASED')),
    frame_index     bigint NOT NULL,
    first_index     bigint NOT NULL,
    row_count       integer NOT NULL,
    attempt         integer NOT NULL,
    worker          text,
    command_id      text COLLATE "C",
    lease_token     uuid,
    lease_seconds   double precision NOT NULL,
    lease_until     timestamptz,
    last_heartbeat  timestamptz,
    input_ref       jsonb,
    checkpoint      jsonb,
    PRIMARY KEY (tenant_id, organization_id, execution_id, frame_id)
) WITH (fillfactor = 70);
COMMENT ON TABLE noetl.frame IS 'Frames that are being worked on or wait for another owner.';
CREATE INDEX idx_frame_stage ON noetl.frame (stage_id, status);
CREATE INDEX idx_frame_lease ON noetl.frame (lease_until) WHERE status = 'LEASED';
