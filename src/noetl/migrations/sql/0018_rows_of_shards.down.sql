DROP INDEX noetl.idx_projection_execution;
CREATE INDEX idx_projection_execution ON noetl.projection (execution_id, projection);
CREATE INDEX idx_projection_shard ON noetl.projection (shard);
