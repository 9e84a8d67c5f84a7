CREATE TABLE noetl.view_barrier (
    tenant_id       text COLLATE "C" NOT NULL,
    organization_id text COLLATE "C" NOT NULL,
    version_id      uuid NOT NULL,
    batch           bigint NOT NULL,
    since           text COLLATE "C" NOT NULL,
    mark            text COLLATE "C" NOT NULL,
    watermark       timestamptz,
    late            bigint NOT NULL,
    late_total      bigint NOT NULL,
    changed         bigint NOT NULL,
    removed         bigint NOT NULL,
    checkpoint      text COLLATE "C" NOT NULL,
    at              timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, organization_id, version_id, batch)
);
COMMENT ON TABLE noetl.view_barrier IS 'Up to which mark a view was brought: the newest barrier, and those of earlier ones that left late rows out.';
