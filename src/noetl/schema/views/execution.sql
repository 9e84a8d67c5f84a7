CREATE VIEW noetl.execution WITH (security_invoker = true) AS
SELECT p.tenant_id, p.organization_id, p.execution_id,
       p.state ->> 'catalog_id' AS catalog_id, (p.state ->> 'parent_execution_id')::bigint AS parent_execution_id,
       p.status, p.state ->> 'last_event_type' AS last_event_type, p.state ->> 'last_node_name' AS last_node_name,
       (p.state ->> 'last_event_id')::bigint AS last_event_id,
       (p.state ->> 'start_time')::timestamptz AS start_time, (p.state ->> 'end_time')::timestamptz AS end_time,
       p.state ->> 'error' AS error, p.state -> 'state' AS state, p.shard, p.first_position, p.last_position,
       p.fold_version, p.checksum, p.updated_at
FROM noetl.projection AS p WHERE p.projection = 'execution';
COMMENT ON VIEW noetl.execution IS 'Executions and their state, as projected.';
