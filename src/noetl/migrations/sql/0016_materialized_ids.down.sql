DROP POLICY shadow ON noetl.shard_holder;
DROP POLICY shadow ON noetl.shard_lease;
ALTER TABLE noetl.shard_holder NO FORCE ROW LEVEL SECURITY;
ALTER TABLE noetl.shard_lease NO FORCE ROW LEVEL SECURITY;
DELETE FROM noetl.shard_holder WHERE role = 'shadow';
DELETE FROM noetl.shard_lease WHERE role = 'shadow';
ALTER TABLE noetl.shard_holder FORCE ROW LEVEL SECURITY;
ALTER TABLE noetl.shard_lease FORCE ROW LEVEL SECURITY;
ALTER TABLE noetl.shard_holder DROP CONSTRAINT shard_holder_role_check, ADD CONSTRAINT shard_holder_role_check
    CHECK (role IN ('relay', 'projector', 'materializer'));
ALTER TABLE noetl.shard_lease DROP CONSTRAINT shard_lease_role_check, ADD CONSTRAINT shard_lease_role_check
    CHECK (role IN ('relay', 'projector', 'materializer'));
DROP FUNCTION noetl.materialize_v2;
ALTER TABLE noetl.materialized DROP COLUMN message_id;
