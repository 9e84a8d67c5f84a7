CREATE OR REPLACE FUNCTION noetl.apply_pins(facts noetl.event[]) RETURNS void
    LANGUAGE plpgsql AS $$
DECLARE
    said noetl.event;
    meta jsonb;
BEGIN
    FOREACH said IN ARRAY facts LOOP
        meta := coalesce(said.meta::jsonb, '{}');
        CASE said.event_type
        WHEN 'pin.policy_set' THEN
            INSERT INTO noetl.retention_policy (tenant_id, organization_id, policy, set_by, set_at)
            VALUES (said.tenant_id, said.organization_id, coalesce(said.context::jsonb -> 'policy', '{}'),
                coalesce(meta ->> 'by', ''), said.ingest_time)
            ON CONFLICT (tenant_id, organization_id) DO UPDATE
                SET policy = excluded.policy, set_by = excluded.set_by, set_at = excluded.set_at;
        WHEN 'pin.created' THEN
            INSERT INTO noetl.pin (tenant_id, organization_id, pin_id, kind, dataset_uuid, execution_id, mark, note,
                until, created_by, created_at)
            VALUES (said.tenant_id, said.organization_id, (meta ->> 'pin_id')::uuid, meta ->> 'kind',
                (meta ->> 'dataset_uuid')::uuid, (meta ->> 'execution_id')::bigint, meta ->> 'mark',
                coalesce(meta ->> 'note', ''), (meta ->> 'until')::timestamptz, coalesce(meta ->> 'by', ''),
                said.ingest_time)
            ON CONFLICT (tenant_id, organization_id, pin_id) DO NOTHING;
        WHEN 'pin.released' THEN
            UPDATE noetl.pin SET released_at = said.ingest_time, released_by = coalesce(meta ->> 'by', '')
            WHERE tenant_id = said.tenant_id AND organization_id = said.organization_id AND pin_id = (meta ->> 'pin_id')::uuid
              AND released_at IS NULL;
        WHEN 'pin.swept' THEN
            INSERT INTO noetl.sweep AS known (tenant_id, organization_id, kind, items, bytes, until, swept_at)
            VALUES (said.tenant_id, said.organization_id, meta ->> 'kind', (meta ->> 'items')::bigint,
                coalesce((meta ->> 'bytes')::bigint, 0), (meta ->> 'until')::timestamptz, said.ingest_time)
            ON CONFLICT (tenant_id, organization_id, kind) DO UPDATE
                SET items = excluded.items, bytes = excluded.bytes, swept_at = excluded.swept_at,
                    until = greatest(known.until, excluded.until);
        WHEN 'generation.trimmed' THEN
            INSERT INTO noetl.trimmed_version (tenant_id, organization_id, dataset_version, partition_key, version,
                dataset_uuid, reason, trimmed_at)
            SELECT said.tenant_id, said.organization_id, (meta ->> 'dataset_version')::uuid, gone ->> 0, (gone ->> 1)::bigint,
                (meta ->> 'dataset_uuid')::uuid, meta ->> 'reason', said.ingest_time
            FROM jsonb_array_elements(said.context::jsonb -> 'versions') AS gone
            ON CONFLICT (tenant_id, organization_id, dataset_version, partition_key, version) DO NOTHING;
        WHEN 'generation.retired', 'generation.purged' THEN
            INSERT INTO noetl.retired_generation (tenant_id, organization_id, dataset_version, dataset_uuid, generation,
                reason, served_until, retired_at, purged_at)
            VALUES (said.tenant_id, said.organization_id, (meta ->> 'dataset_version')::uuid, (meta ->> 'dataset_uuid')::uuid,
                (meta ->> 'generation')::uuid, meta ->> 'reason', (meta ->> 'served_until')::timestamptz,
                said.ingest_time, CASE said.event_type WHEN 'generation.purged' THEN said.ingest_time END)
            ON CONFLICT (tenant_id, organization_id, dataset_version) DO UPDATE
                SET reason = excluded.reason, purged_at = excluded.purged_at;
        ELSE
            RAISE case_not_found USING MESSAGE = format('no rule says what becomes of what is kept after %s', said.event_type);
        END CASE;
    END LOOP;
END
$$;
COMMENT ON FUNCTION noetl.apply_pins IS
    'Changes the rows of what is kept whatever its age, and what was removed, as events of this transaction say.';
REVOKE ALL ON FUNCTION noetl.apply_pins FROM PUBLIC;
