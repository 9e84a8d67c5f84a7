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
