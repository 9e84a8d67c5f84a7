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
    PRIMARY KEY (tenant_id, organization_id, token_id),
    CONSTRAINT api_token_role_check CHECK (role IN ('reader', 'writer', 'admin', 'worker')),
    CONSTRAINT api_token_digest_check CHECK (octet_length(digest) = 32)
);
COMMENT ON TABLE noetl.api_token IS 'Who may call the API. Tokens are random, so their digest alone says nothing of them.';
CREATE UNIQUE INDEX uidx_api_token_digest ON noetl.api_token (digest);

DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['credential', 'keychain', 'api_token'] LOOP
        EXECUTE format('ALTER TABLE noetl.%I ENABLE ROW LEVEL SECURITY', name);
        EXECUTE format('ALTER TABLE noetl.%I FORCE ROW LEVEL SECURITY', name);
        EXECUTE format('CREATE POLICY scoped ON noetl.%I TO noetl_runtime USING (tenant_id = '
                       '(SELECT noetl.tenant()) AND organization_id = (SELECT noetl.organization()))', name);
        EXECUTE format('GRANT SELECT, INSERT ON noetl.%I TO noetl_runtime', name);
    END LOOP;
END
$$;
GRANT UPDATE, DELETE ON noetl.credential, noetl.keychain TO noetl_runtime;
-- A token is revoked, never removed or changed: who held which right when stays known.
GRANT UPDATE (revoked_at, last_used_at) ON noetl.api_token TO noetl_runtime;

-- The owner's functions below look over all tenants; nobody logs in as the owner but migrations.
CREATE POLICY counting ON noetl.credential FOR SELECT TO current_user USING (true);
CREATE POLICY counting ON noetl.keychain FOR SELECT TO current_user USING (true);
CREATE POLICY admitting ON noetl.api_token FOR SELECT TO current_user USING (true);

CREATE FUNCTION noetl.token_scope_v1(p_digest bytea)
    RETURNS TABLE (tenant_id text, organization_id text, role text, token_id uuid)
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT t.tenant_id, t.organization_id, t.role, t.token_id
    FROM noetl.api_token AS t
    WHERE t.digest = p_digest AND t.revoked_at IS NULL
      AND (t.expires_at IS NULL OR t.expires_at > clock_timestamp())
$$;
COMMENT ON FUNCTION noetl.token_scope_v1(bytea) IS
    'Whose a token is and what it may do; no row for one that is unknown, expired or revoked.';
REVOKE ALL ON FUNCTION noetl.token_scope_v1(bytea) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION noetl.token_scope_v1(bytea) TO noetl_runtime;

CREATE FUNCTION noetl.sealed_rows_v1()
    RETURNS TABLE (tenant_id text, organization_id text, key_id text, sealed bigint)
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT s.tenant_id, s.organization_id, s.key_id, count(*)
    FROM (SELECT c.tenant_id, c.organization_id, c.key_id FROM noetl.credential AS c
          UNION ALL
          SELECT k.tenant_id, k.organization_id, k.key_id FROM noetl.keychain AS k) AS s
    GROUP BY s.tenant_id, s.organization_id, s.key_id
$$;
COMMENT ON FUNCTION noetl.sealed_rows_v1() IS
    'How many rows of each organization each master key seals, so that keys are rotated and none in use is removed.';
REVOKE ALL ON FUNCTION noetl.sealed_rows_v1() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION noetl.sealed_rows_v1() TO noetl_runtime;
