CREATE TABLE noetl.query_audit (
    tenant_id       text COLLATE "C" NOT NULL,
    organization_id text COLLATE "C" NOT NULL,
    query_id        bigint NOT NULL,
    outcome         text NOT NULL CHECK (outcome IN ('answered', 'refused', 'failed')),
    code            text COLLATE "C",
    asked_by        text NOT NULL,
    token_id        uuid,
    user_id         uuid,
    engine          text NOT NULL,
    sql_sha256      text COLLATE "C" NOT NULL,
    mark            text COLLATE "C",
    pinned          jsonb NOT NULL,
    rows            bigint,
    bytes           bigint,
    milliseconds    double precision NOT NULL,
    asked_at        timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, organization_id, query_id)
);
COMMENT ON TABLE noetl.query_audit IS 'Who asked which datasets, when, and with what outcome. The text of a query is never kept, only its SHA-256.';
