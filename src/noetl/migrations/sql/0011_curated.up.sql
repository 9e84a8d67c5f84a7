-- Curated views. Operators see no row of any tenant: they are handed answers, each once, and only after the read is on
-- record in the ledger. The role that hands them out can do nothing else.

DO $$
BEGIN
    BEGIN
        CREATE ROLE noetl_operator LOGIN NOINHERIT NOSUPERUSER NOCREATEDB NOCREATEROLE NOBYPASSRLS;
    EXCEPTION WHEN duplicate_object OR unique_violation THEN
        NULL; -- roles belong to the whole server: another database of it made this one
    END;
    IF current_setting('server_version_num')::integer < 160000 THEN
        IF NOT pg_has_role(current_user, 'noetl_operator', 'MEMBER') THEN
            EXECUTE 'GRANT noetl_operator TO current_user';
        END IF;
    ELSIF NOT pg_has_role(current_user, 'noetl_operator', 'SET') THEN
        EXECUTE 'GRANT noetl_operator TO current_user WITH SET TRUE, INHERIT FALSE';
    END IF;
END
$$;
GRANT USAGE ON SCHEMA noetl TO noetl_operator;

ALTER TABLE noetl.api_token DROP CONSTRAINT api_token_role_check;
ALTER TABLE noetl.api_token ADD CONSTRAINT api_token_role_check
    CHECK (role IN ('reader', 'writer', 'admin', 'worker', 'operator'));

-- Whoever can read it can read the rows themselves, so it says nothing new to them; to all others it is out of reach.
CREATE TABLE noetl.curated_secret (
    only_one boolean PRIMARY KEY DEFAULT true CHECK (only_one),
    secret   bytea NOT NULL
);
COMMENT ON TABLE noetl.curated_secret IS
    'What hashes in curated views are keyed with: made once for this installation, never shown.';
INSERT INTO noetl.curated_secret (secret)
VALUES (sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())));
GRANT SELECT ON noetl.curated_secret TO noetl_projector;

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

ALTER TABLE noetl.curated_answer ENABLE ROW LEVEL SECURITY;
ALTER TABLE noetl.curated_answer FORCE ROW LEVEL SECURITY;
CREATE POLICY scoped ON noetl.curated_answer TO noetl_projector, current_user
    USING (tenant_id = (SELECT noetl.tenant()) AND organization_id = (SELECT noetl.organization()));
CREATE POLICY forgotten ON noetl.curated_answer FOR SELECT TO noetl_projector USING (true);
CREATE POLICY forgetting ON noetl.curated_answer FOR DELETE TO noetl_projector
    USING (computed_at < now() - interval '1 hour');
GRANT SELECT, INSERT, DELETE ON noetl.curated_answer TO noetl_projector;

CREATE FUNCTION noetl.take_curated_answer_v1(p_tenant text, p_organization text, p_read_id bigint) RETURNS json
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    taken json;
BEGIN
    IF p_tenant IS DISTINCT FROM noetl.tenant() OR p_organization IS DISTINCT FROM noetl.organization() THEN
        RAISE insufficient_privilege USING MESSAGE = 'the answer lies outside the tenant of this transaction';
    END IF;
    IF NOT EXISTS (
        SELECT FROM noetl.event AS e WHERE e.execution_id = p_read_id AND e.tenant_id = p_tenant
          AND e.organization_id = p_organization AND e.event_type = 'curated.read'
    ) THEN
        RAISE insufficient_privilege USING MESSAGE = format('read %s is not on record, so it gives nothing', p_read_id);
    END IF;
    DELETE FROM noetl.curated_answer AS a
    WHERE a.tenant_id = p_tenant AND a.organization_id = p_organization AND a.read_id = p_read_id
    RETURNING a.answer INTO taken;
    RETURN taken;
END
$$;
COMMENT ON FUNCTION noetl.take_curated_answer_v1 IS
    'Hands an answer out, once, if the read is on record in the ledger; null if it was handed out before.';
REVOKE ALL ON FUNCTION noetl.take_curated_answer_v1 FROM PUBLIC;
GRANT EXECUTE ON FUNCTION noetl.take_curated_answer_v1 TO noetl_operator;
