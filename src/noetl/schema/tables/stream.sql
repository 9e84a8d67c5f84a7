CREATE TABLE noetl.stream (
    tenant_id       text COLLATE "C" NOT NULL,
    organization_id text COLLATE "C" NOT NULL,
    stream_id       text COLLATE "C" NOT NULL,
    version         bigint NOT NULL DEFAULT 0,
    shard           smallint NOT NULL,
    execution_id    bigint,
    PRIMARY KEY (tenant_id, organization_id, stream_id)
) WITH (fillfactor = 80);
COMMENT ON TABLE noetl.stream IS 'The head of each stream: its last version. Written with its events, rebuildable from them.';
CREATE INDEX idx_stream_execution ON noetl.stream (execution_id) WHERE execution_id IS NOT NULL;
-- One row per execution, so that lists of executions never meet the streams of their commands and stages.
CREATE INDEX idx_stream_of_execution ON noetl.stream (tenant_id, organization_id, execution_id)
    WHERE stream_id = 'execution/' || execution_id::text;
