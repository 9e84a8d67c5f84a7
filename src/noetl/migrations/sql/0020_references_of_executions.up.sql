-- References are asked for by execution. A key that begins with it needs no index beside it, for which every reference paid.
ALTER TABLE noetl.result_ref DROP CONSTRAINT result_ref_pkey;
DROP INDEX noetl.idx_result_ref_execution;
ALTER TABLE noetl.result_ref ADD PRIMARY KEY (tenant_id, organization_id, execution_id, ref_id, part);
