CREATE VIEW noetl.result_ref WITH (security_invoker = true) AS
SELECT e.tenant_id, e.organization_id, e.event_id AS ref_id, told.part, told.ref ->> 'uri' AS ref, e.execution_id,
       e.causation_id AS parent_ref_id, e.node_name AS name, e.node_name AS source_step, place.store_tier,
       place.address || '/' || e.tenant_id || '/' || e.organization_id || '/payloads/sha256/' || (told.ref ->> 'sha256')
           AS physical_uri,
       told.ref ->> 'media_type' AS content_type, (told.ref ->> 'bytes')::bigint AS bytes_size,
       told.ref ->> 'sha256' AS sha256, coalesce(told.ref ->> 'encoding', 'identity') AS compression,
       e.ingest_time AS created_at, e.shard
FROM noetl.event AS e
CROSS JOIN LATERAL (VALUES ('payload', e.payload_ref), ('fields', e.fields_ref)) AS told (part, ref)
LEFT JOIN noetl.payload_place AS place ON true
WHERE told.ref IS NOT NULL;
COMMENT ON VIEW noetl.result_ref IS
    'Where each payload that an event refers to lies. ref_id is the event''s id, parent_ref_id that of the event that caused it.';
