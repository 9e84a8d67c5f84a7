-- Dropping a partition takes its index of payloads along, so the digests that archived events refer to stay here:
-- garbage collection must count them in the same transaction in which it condemns.
CREATE TABLE noetl.archive_payload (
    tenant_id       text COLLATE "C" NOT NULL,
    organization_id text COLLATE "C" NOT NULL,
    digest          bytea NOT NULL,
    partition       text COLLATE "C" NOT NULL,
    holds_events    boolean NOT NULL DEFAULT false,
    PRIMARY KEY (tenant_id, organization_id, digest, partition)
);
COMMENT ON TABLE noetl.archive_payload IS
    'Payloads an archive needs: those its events refer to, and (holds_events) the objects that hold the events.';
CREATE INDEX idx_archive_payload_partition ON noetl.archive_payload (tenant_id, organization_id, partition);
