CREATE TABLE noetl.payload_hold (
    tenant_id       text COLLATE "C" NOT NULL,
    organization_id text COLLATE "C" NOT NULL,
    digest          bytea NOT NULL,
    PRIMARY KEY (tenant_id, organization_id, digest)
);
COMMENT ON TABLE noetl.payload_hold IS 'Payloads that rows still need although the archive of the events that brought them was removed.';
