CREATE TABLE noetl.command (
    tenant_id          text COLLATE "C" NOT NULL,
    organization_id    text COLLATE "C" NOT NULL,
    execution_id       bigint NOT NULL,
    command_id         text COLLATE "C" NOT NULL,
    step_name          text NOT NULL,
    tool_kind          text NOT NULL,
    status             text NOT NULL CHECK (status IN ('PENDING', 'CLAIMED', 'SUSPENDED')),
    attempt            integer NOT NULL,
    worker             text,
    lease_token        uuid,
    lease_seconds      double precision NOT NULL,
    lease_until        timestamptz,
    last_heartbeat     timestamptz,
    available_at       timestamptz NOT NULL,
    stage_id           bigint,
    loop_id            bigint,
    child_execution_id bigint,
    issued_event_id    bigint NOT NULL,
    near               jsonb,
    PRIMARY KEY (tenant_id, organization_id, execution_id, command_id)
) WITH (fillfactor = 70);
COMMENT ON TABLE noetl.command IS 'Commands that have not ended: waiting, leased to a worker, or suspended on a child execution.';
CREATE INDEX idx_command_pending ON noetl.command (tenant_id, organization_id, available_at) WHERE status = 'PENDING';
CREATE INDEX idx_command_lease ON noetl.command (lease_until) WHERE status = 'CLAIMED';
CREATE INDEX idx_command_child ON noetl.command (child_execution_id) WHERE child_execution_id IS NOT NULL;
COMMENT ON COLUMN noetl.command.near IS
    'Node, zone and region that hold most of what the command reads, as its event says; null where that does not matter.';
