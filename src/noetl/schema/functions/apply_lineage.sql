CREATE OR REPLACE FUNCTION noetl.apply_lineage(facts noetl.event[]) RETURNS void
    LANGUAGE plpgsql AS $$
DECLARE
    said    noetl.event;
    meta    jsonb;
    context jsonb;
BEGIN
    FOREACH said IN ARRAY facts LOOP
        IF said.event_type <> 'dataset.lineage_set' THEN
            RAISE case_not_found USING MESSAGE = format('no rule says what becomes of lineage after %s', said.event_type);
        END IF;
        meta := coalesce(said.meta::jsonb, '{}');
        context := coalesce(said.context::jsonb, '{}');
        INSERT INTO noetl.dataset_lineage (tenant_id, organization_id, dataset_version, version, dataset_uuid, number,
            lineage_hash, how, reason, job, inputs, columns_ref)
        VALUES (said.tenant_id, said.organization_id, (meta ->> 'dataset_version')::uuid, said.stream_version,
            (meta ->> 'dataset_uuid')::uuid, (meta ->> 'version')::integer, meta ->> 'lineage_hash', meta ->> 'how',
            context ->> 'reason', said.node_name, coalesce(context -> 'inputs', '[]'), said.payload_ref::jsonb);
        INSERT INTO noetl.column_lineage (tenant_id, organization_id, dataset_version, version, place,
            output_dataset_uuid, output_column, input_dataset_uuid, input_column, kind, how, job)
        SELECT said.tenant_id, said.organization_id, (meta ->> 'dataset_version')::uuid, said.stream_version, edge.place - 1,
            (meta ->> 'dataset_uuid')::uuid, edge.parts ->> 0, (edge.parts ->> 1)::uuid, edge.parts ->> 2,
            edge.parts ->> 3, meta ->> 'how', said.node_name
        FROM jsonb_array_elements(coalesce(context -> 'columns', '[]')) WITH ORDINALITY AS edge (parts, place);
    END LOOP;
END
$$;
COMMENT ON FUNCTION noetl.apply_lineage IS
    'Changes the rows of which column comes from which, as events of this transaction say.';
REVOKE ALL ON FUNCTION noetl.apply_lineage FROM PUBLIC;
