CREATE OR REPLACE FUNCTION noetl.apply_queries(
    p_tenant text, p_organization text, p_execution bigint[], p_event bigint[]
) RETURNS void
    LANGUAGE plpgsql AS $$
DECLARE
    said noetl.event;
    meta jsonb;
BEGIN
    FOR place IN 1..cardinality(p_event) LOOP
        SELECT e.* INTO said FROM noetl.known_event AS e
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
COMMENT ON FUNCTION noetl.apply_queries IS
    'Changes the rows of queries and of the readers of datasets, as events of this transaction say.';
REVOKE ALL ON FUNCTION noetl.apply_queries FROM PUBLIC;
