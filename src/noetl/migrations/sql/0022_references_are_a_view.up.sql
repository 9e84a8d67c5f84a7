-- An event carries its references, and nobody decides by where they lie: written again they cost a tenth of what it
-- takes to project it. What the ledger does not know, where the payload store is, is one row.
DROP TABLE noetl.result_ref;

CREATE TABLE noetl.payload_place (
    is_only    boolean PRIMARY KEY DEFAULT true CHECK (is_only),
    store_tier text NOT NULL,
    address    text NOT NULL,
    CONSTRAINT payload_place_store_tier_check CHECK (store_tier IN (
        'memory', 'kv', 'disk', 'object', 's3', 'gcs', 'azure', 'db', 'duckdb', 'eventlog', 'minio', 'pvc'))
);
COMMENT ON TABLE noetl.payload_place IS 'Where the payload store is, as whoever projected last was set.';
COMMENT ON COLUMN noetl.payload_place.address IS
    'What the address of every object begins with: s3://bucket/prefix, gs://bucket/prefix, az://…, file:///path.';
GRANT SELECT ON noetl.payload_place TO noetl_runtime, noetl_projector, noetl_retention;
GRANT INSERT, UPDATE ON noetl.payload_place TO noetl_projector;

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
GRANT SELECT ON noetl.result_ref TO noetl_runtime, noetl_projector, noetl_retention;
