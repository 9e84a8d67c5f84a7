-- The way in as it was before is made anew from its own migration.
DROP FUNCTION noetl.append_v3;
DROP FUNCTION noetl.append_groups_v1;
DROP TYPE noetl.new_event, noetl.new_append, noetl.lease_fence;
