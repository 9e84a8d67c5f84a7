CREATE TABLE noetl.api_token (
    tenant_id       text COLLATE "C" NOT NULL,
    organization_id text COLLATE "C" NOT NULL,
    token_id        uuid NOT NULL DEFAULT gen_random_uuid(),
    name            text NOT NULL,
    role            text NOT NULL DEFAULT 'reader',
    digest          bytea NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at      timestamptz,
    revoked_at      timestamptz,
    last_used_at    timestamptz,
    -- A token may belong to a person; it reads what the person's roles let it read.
    user_id         uuid,
    -- When the organization was opened again after this token had ended. A token without it keeps the server asking for one.
    opened_at       timestamptz,
    PRIMARY KEY (tenant_id, organization_id, token_id),
    CONSTRAINT api_token_role_check CHECK (role IN ('reader', 'writer', 'admin', 'worker', 'operator')),
    CONSTRAINT api_token_digest_check CHECK (octet_length(digest) = 32)
);
COMMENT ON TABLE noetl.api_token IS 'Who may call the API. Tokens are random, so their digest alone says nothing of them.';
CREATE UNIQUE INDEX uidx_api_token_digest ON noetl.api_token (digest);
