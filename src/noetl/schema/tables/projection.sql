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
CREATE INDEX idx_projection_status
    ON noetl.projection (status, tenant_id, organization_id, execution_id DESC) WHERE projection = 'execution';
CREATE INDEX idx_projection_execution ON noetl.projection (execution_id, projection, shard);
