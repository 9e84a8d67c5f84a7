CREATE OR REPLACE FUNCTION noetl.apply_queries(facts noetl.event[]) RETURNS void
    LANGUAGE plpgsql AS $$
DECLARE
    said noetl.event;
    meta jsonb;
BEGIN
    FOREACH said IN ARRAY facts LOOP
        meta := said.meta::jsonb;
        CASE said.event_type
        WHEN 'query.readers_set' THEN
            DELETE FROM noetl.dataset_reader WHERE tenant_id = said.tenant_id AND organization_id = said.organization_id
                AND dataset_uuid = (meta ->> 'dataset_uuid')::uuid;
            INSERT INTO noetl.dataset_reader (tenant_id, organization_id, dataset_uuid, role)
            SELECT DISTINCT said.tenant_id, said.organization_id, (meta ->> 'dataset_uuid')::uuid, r
            FROM jsonb_array_elements_text(meta -> 'roles') AS r;
        WHEN 'query.answered', 'query.refused', 'query.failed' THEN
            INSERT INTO noetl.query_audit (tenant_id, organization_id, query_id, outcome, code, asked_by, token_id,
                user_id, engine, sql_sha256, mark, pinned, rows, bytes, milliseconds, asked_at)
            VALUES (said.tenant_id, said.organization_id, said.execution_id, split_part(said.event_type, '.', 2), meta ->> 'code',
                meta ->> 'asked_by', (meta ->> 'token_id')::uuid, (meta ->> 'user_id')::uuid, meta ->> 'engine',
                meta ->> 'sql_sha256', meta ->> 'mark', coalesce(said.context::jsonb -> 'datasets', '[]'),
                (meta ->> 'rows')::bigint, (meta ->> 'bytes')::bigint, (meta ->> 'milliseconds')::double precision,
                said.ingest_time);
        ELSE
            RAISE case_not_found USING MESSAGE = format('no rule says what becomes of queries after %s', said.event_type);
        END CASE;
    END LOOP;
END
$$;
COMMENT ON FUNCTION noetl.apply_queries IS
    'Changes the rows of queries and of the readers of datasets, as events of this transaction say.';
REVOKE ALL ON FUNCTION noetl.apply_queries FROM PUBLIC;
