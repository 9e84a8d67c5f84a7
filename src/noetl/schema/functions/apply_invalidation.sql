-- The functions below serve the append and run in its rights and settings; nobody else may call them.
CREATE OR REPLACE FUNCTION noetl.apply_invalidation(said noetl.event) RETURNS void
    LANGUAGE plpgsql AS $$
DECLARE
    meta    jsonb := coalesce(said.meta::jsonb, '{}');
    context jsonb := coalesce(said.context::jsonb, '{}');
    own     bigint := substring(said.stream_id FROM 14)::bigint;
    nothing boolean;
BEGIN
    CASE said.event_type
    WHEN 'dataset.invalidated' THEN
        nothing := coalesce(context -> 'dependents', '{}') = '{}';
        INSERT INTO noetl.data_invalidation (tenant_id, organization_id, invalidation_id, dataset_uuid, dataset_version,
            scope, partition_key, row_filter, reason, note, requested_by, dependents, processed_by, status, created_at,
            closed_at)
        VALUES (said.tenant_id, said.organization_id, own, (meta ->> 'dataset_uuid')::uuid,
            (meta ->> 'dataset_version')::uuid, meta ->> 'scope', meta ->> 'partition_key', context -> 'row_filter',
            meta ->> 'reason', meta ->> 'note', meta ->> 'requested_by', coalesce(context -> 'dependents', '{}'), '{}',
            CASE WHEN nothing THEN 'closed' ELSE 'open' END, said.ingest_time,
            CASE WHEN nothing THEN said.ingest_time END)
        ON CONFLICT (tenant_id, organization_id, invalidation_id) DO NOTHING;
    WHEN 'invalidation.processed' THEN
        UPDATE noetl.data_invalidation
        SET processed_by = processed_by || jsonb_build_object(meta ->> 'generation',
                coalesce((processed_by ->> (meta ->> 'generation'))::integer, 0) + 1)
        WHERE tenant_id = said.tenant_id AND organization_id = said.organization_id AND invalidation_id = own;
        UPDATE noetl.data_invalidation AS known SET status = 'closed', closed_at = said.ingest_time
        WHERE known.tenant_id = said.tenant_id AND known.organization_id = said.organization_id
          AND known.invalidation_id = own AND known.status = 'open' AND NOT EXISTS (
            SELECT FROM jsonb_each_text(known.dependents) AS d
            WHERE coalesce((known.processed_by ->> d.key)::integer, 0) < d.value::integer);
    WHEN 'invalidation.closed' THEN -- without all of its tasks
        UPDATE noetl.data_invalidation
        SET status = 'closed', closed_at = said.ingest_time, closed_because = meta ->> 'because'
        WHERE tenant_id = said.tenant_id AND organization_id = said.organization_id AND invalidation_id = own
          AND status = 'open';
    ELSE
        RAISE case_not_found USING MESSAGE = format('no rule says what becomes of invalidations after %s', said.event_type);
    END CASE;
END
$$;
COMMENT ON FUNCTION noetl.apply_invalidation IS 'Changes an invalidation as an event of its stream says.';
REVOKE ALL ON FUNCTION noetl.apply_invalidation FROM PUBLIC;
