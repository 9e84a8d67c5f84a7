DROP POLICY relayed ON noetl.event;
DROP TABLE noetl.projection_epoch, noetl.stream_durable, noetl.relay_cursor, noetl.shard_lease, noetl.shard_holder;
REVOKE ALL ON ALL TABLES IN SCHEMA noetl FROM noetl_relay, noetl_materializer;
REVOKE ALL ON public.schema_revision FROM noetl_relay, noetl_materializer;
REVOKE USAGE ON SCHEMA noetl FROM noetl_relay, noetl_materializer;
CREATE INDEX idx_result_ref_shard ON noetl.result_ref (shard);
