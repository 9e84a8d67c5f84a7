-- Queries that were asked, and who may read a dataset.

-- A token may belong to a person; it reads what the person's roles let it read.
ALTER TABLE noetl.api_token ADD COLUMN user_id uuid;

CREATE TABLE noetl.dataset_reader (
    tenant_id       text COLLATE "C" NOT NULL,
    organization_id text COLLATE "C" NOT NULL,
    dataset_uuid    uuid NOT NULL,
    role            text COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant_id, organization_id, dataset_uuid, role)
);
COMMENT ON TABLE noetl.dataset_reader IS 'The roles whose holders may read a dataset; one without rows is readable by its organization.';

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

DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['dataset_reader', 'query_audit'] LOOP
        EXECUTE format('ALTER TABLE noetl.%I ENABLE ROW LEVEL SECURITY', name);
        EXECUTE format('ALTER TABLE noetl.%I FORCE ROW LEVEL SECURITY', name);
        EXECUTE format('CREATE POLICY scoped ON noetl.%I TO noetl_runtime, current_user
            USING (tenant_id = (SELECT noetl.tenant()) AND organization_id = (SELECT noetl.organization()))', name);
        EXECUTE format('GRANT SELECT ON noetl.%I TO noetl_runtime', name);
    END LOOP;
END
$$;

CREATE FUNCTION noetl.apply_queries_v1(p_tenant text, p_organization text, p_execution bigint[], p_event bigint[])
    RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    said noetl.event;
    meta jsonb;
BEGIN
    FOR place IN 1..cardinality(p_event) LOOP
        SELECT e.* INTO said FROM noetl.event AS e
        WHERE e.execution_id = p_execution[place] AND e.event_id >= p_event[place] AND e.tenant_id = p_tenant
          AND e.organization_id = p_organization ORDER BY e.event_id LIMIT 1;
        meta := said.meta::jsonb;
        IF said.event_type = 'query.readers_set' THEN
            DELETE FROM noetl.dataset_reader WHERE tenant_id = p_tenant AND organization_id = p_organization
                AND dataset_uuid = (meta ->> 'dataset_uuid')::uuid;
            INSERT INTO noetl.dataset_reader (tenant_id, organization_id, dataset_uuid, role)
            SELECT DISTINCT p_tenant, p_organization, (meta ->> 'dataset_uuid')::uuid, r
            FROM jsonb_array_elements_text(meta -> 'roles') AS r;
        ELSE
            INSERT INTO noetl.query_audit (tenant_id, organization_id, query_id, outcome, code, asked_by, token_id,
                user_id, engine, sql_sha256, mark, pinned, rows, bytes, milliseconds, asked_at)
            VALUES (p_tenant, p_organization, said.execution_id, split_part(said.event_type, '.', 2), meta ->> 'code',
                meta ->> 'asked_by', (meta ->> 'token_id')::uuid, (meta ->> 'user_id')::uuid, meta ->> 'engine',
                meta ->> 'sql_sha256', meta ->> 'mark', coalesce(said.context::jsonb -> 'datasets', '[]'),
                (meta ->> 'rows')::bigint, (meta ->> 'bytes')::bigint, (meta ->> 'milliseconds')::double precision,
                said.ingest_time);
        END IF;
    END LOOP;
END
$$;
COMMENT ON FUNCTION noetl.apply_queries_v1 IS 'Changes the rows of queries and of the readers of datasets, as events of this transaction say.';
REVOKE ALL ON FUNCTION noetl.apply_queries_v1 FROM PUBLIC;
