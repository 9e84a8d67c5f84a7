CREATE TABLE noetl.snapshot (
    tenant_id          text COLLATE "C" NOT NULL,
    organization_id    text COLLATE "C" NOT NULL,
    aggregate_type     text COLLATE "C" NOT NULL,
    aggregate_id       text COLLATE "C" NOT NULL,
    version            bigint NOT NULL,
    fold_versions      json NOT NULL,
    upcaster_digest    text NOT NULL,
    payload_root       text NOT NULL,
    encryption_context text NOT NULL,
    checksum           text NOT NULL,
    payload_ref        json NOT NULL,
    payload_sha256     text COLLATE "C" NOT NULL,
    created_at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (tenant_id, organization_id, aggregate_type, aggregate_id, version)
);
COMMENT ON TABLE noetl.snapshot IS 'Folded states kept to shorten replays; used only if they validate, never the authority.';
CREATE INDEX idx_snapshot_payload ON noetl.snapshot (payload_sha256);
