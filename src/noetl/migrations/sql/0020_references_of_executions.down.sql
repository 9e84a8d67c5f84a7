ALTER TABLE noetl.result_ref DROP CONSTRAINT result_ref_pkey;
ALTER TABLE noetl.result_ref ADD PRIMARY KEY (tenant_id, organization_id, ref_id, part);
CREATE INDEX idx_result_ref_execution ON noetl.result_ref (execution_id);
