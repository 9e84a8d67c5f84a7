CREATE TABLE noetl.keychain (
    tenant_id              text COLLATE "C" NOT NULL,
    organization_id        text COLLATE "C" NOT NULL,
    cache_key              text COLLATE "C" NOT NULL,
    keychain_name          text NOT NULL,
    kind                   text NOT NULL,
    scope                  text NOT NULL DEFAULT 'local',
    execution_id           bigint,
    catalog_path           text,
    data_encrypted         bytea NOT NULL,
    renew_config_encrypted bytea,
    key_id                 text COLLATE "C" NOT NULL,
    auto_renew             boolean NOT NULL DEFAULT false,
    renew_at               timestamptz NOT NULL,
    expires_at             timestamptz NOT NULL,
    renewals               integer NOT NULL DEFAULT 0,
    created_at             timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at             timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (tenant_id, organization_id, cache_key),
    CONSTRAINT keychain_scope_check CHECK (scope IN ('local', 'global', 'shared'))
);
COMMENT ON TABLE noetl.keychain IS 'Tokens and secrets fetched for playbooks, encrypted and kept until they expire. Safe to lose.';
COMMENT ON COLUMN noetl.keychain.renew_config_encrypted IS 'How to fetch the entry again without its playbook, for auto_renew.';
CREATE INDEX idx_keychain_key ON noetl.keychain (key_id);
CREATE INDEX idx_keychain_execution ON noetl.keychain (execution_id) WHERE execution_id IS NOT NULL;
CREATE INDEX idx_keychain_renew ON noetl.keychain (renew_at) WHERE auto_renew;
CREATE INDEX idx_keychain_expires ON noetl.keychain (expires_at);
