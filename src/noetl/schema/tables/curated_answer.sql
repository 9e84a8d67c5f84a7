CREATE TABLE noetl.curated_answer (
    tenant_id       text COLLATE "C" NOT NULL,
    organization_id text COLLATE "C" NOT NULL,
    read_id         bigint NOT NULL,
    answer          json NOT NULL,
    computed_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (tenant_id, organization_id, read_id)
);
COMMENT ON TABLE noetl.curated_answer IS
    'Redacted rows of curated views on their way to whoever asked, under the organization of the one who did.';
