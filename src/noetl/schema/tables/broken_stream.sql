CREATE TABLE noetl.broken_stream (
    tenant_id       text COLLATE "C" NOT NULL,
    organization_id text COLLATE "C" NOT NULL,
    stream_id       text COLLATE "C" NOT NULL,
    shard           smallint NOT NULL,
    position        bigint NOT NULL,
    event_id        bigint NOT NULL,
    sha256          text COLLATE "C" NOT NULL,
    code            text NOT NULL,
    message         text NOT NULL,
    since           timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (tenant_id, organization_id, stream_id)
);
COMMENT ON TABLE noetl.broken_stream IS
    'Streams whose rows stand still, while their shard goes on; written with the checkpoint, and gone when they go on.';
COMMENT ON COLUMN noetl.broken_stream.stream_id IS 'The stream, or that of the execution it is part of.';
COMMENT ON COLUMN noetl.broken_stream.position IS 'The first event of the stream that is not in its rows.';
COMMENT ON COLUMN noetl.broken_stream.sha256 IS 'The fields of that event, which cannot be read.';
CREATE INDEX idx_broken_stream_shard ON noetl.broken_stream (shard);
