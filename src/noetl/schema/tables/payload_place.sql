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
