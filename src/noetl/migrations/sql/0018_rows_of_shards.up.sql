-- Whoever wants the rows of a shard wants all of them, and rows of all shards lie side by side: an index by shard spared
-- nothing then, and every row paid for it. Rows are still counted by shard from an index alone.
DROP INDEX noetl.idx_projection_shard;
DROP INDEX noetl.idx_projection_execution;
CREATE INDEX idx_projection_execution ON noetl.projection (execution_id, projection, shard);
