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
-- A projector without a ledger can read no event twice, so it keeps here what it could not fold.
CREATE TABLE noetl.held_event (
    tenant_id       text COLLATE "C" NOT NULL,
    organization_id text COLLATE "C" NOT NULL,
    stream_id       text COLLATE "C" NOT NULL,
    shard           smallint NOT NULL,
    position        bigint NOT NULL,
    event           bytea NOT NULL,
    PRIMARY KEY (shard, position)
);
COMMENT ON TABLE noetl.held_event IS 'Events of broken streams that came by a stream, kept until they are folded.';
COMMENT ON COLUMN noetl.held_event.stream_id IS 'The broken stream they wait for.';
-- policies.sql
ALTER TABLE noetl.broken_stream ENABLE ROW LEVEL SECURITY;
ALTER TABLE noetl.broken_stream FORCE ROW LEVEL SECURITY;
ALTER TABLE noetl.held_event ENABLE ROW LEVEL SECURITY;
ALTER TABLE noetl.held_event FORCE ROW LEVEL SECURITY;
CREATE POLICY scoped ON noetl.broken_stream FOR SELECT TO noetl_runtime
    USING (tenant_id = (SELECT noetl.tenant()) AND organization_id = (SELECT noetl.organization()));
CREATE POLICY all_tenants ON noetl.broken_stream TO noetl_projector USING (true);
CREATE POLICY all_tenants ON noetl.held_event TO noetl_projector USING (true);
GRANT SELECT ON noetl.broken_stream TO noetl_runtime;
GRANT SELECT, INSERT, UPDATE, DELETE ON noetl.broken_stream, noetl.held_event TO noetl_projector;
