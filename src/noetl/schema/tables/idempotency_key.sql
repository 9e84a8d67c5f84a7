CREATE TABLE noetl.idempotency_key (
    tenant_id       text COLLATE "C" NOT NULL,
    organization_id text COLLATE "C" NOT NULL,
    key             text COLLATE "C" NOT NULL,
    content_digest  bytea NOT NULL,
    execution_id    bigint NOT NULL,
    event_id        bigint NOT NULL,
    ordinal         integer NOT NULL,
    event_ids       bigint[] NOT NULL,
    expires_at      timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, organization_id, key)
);
COMMENT ON TABLE noetl.idempotency_key IS
    'What each key wrote first. The answer to a repetition is read from the event the key belongs to.';
CREATE INDEX idx_idempotency_key_expires ON noetl.idempotency_key (expires_at);
