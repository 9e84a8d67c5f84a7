-- Credentials, keychain entries and API tokens. Secrets stand here encrypted only; of tokens there is a digest alone.
CREATE TABLE noetl.credential (
    tenant_id       text COLLATE "C" NOT NULL,
    organization_id text COLLATE "C" NOT NULL,
    name            text COLLATE "C" NOT NULL,
    type            text NOT NULL,
    data_encrypted  bytea NOT NULL,
    key_id          text COLLATE "C" NOT NULL,
    fields          text[] NOT NULL DEFAULT '{}',
    description     text,
    tags            text[] NOT NULL DEFAULT '{}',
    meta            json,
    created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (tenant_id, organization_id, name)
);
COMMENT ON TABLE noetl.credential IS 'Named secrets of an organization, encrypted before they get here.';
COMMENT ON COLUMN noetl.credential.key_id IS 'The master key data_encrypted was sealed with; the key itself is never here.';
COMMENT ON COLUMN noetl.credential.fields IS 'The names of the fields in data_encrypted, without their values.';
CREATE INDEX idx_credential_key ON noetl.credential (key_id);
