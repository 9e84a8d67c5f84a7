CREATE TABLE noetl.task_input (
    tenant_id             text COLLATE "C" NOT NULL,
    organization_id       text COLLATE "C" NOT NULL,
    task_id               uuid NOT NULL,
    input_dataset_uuid    uuid NOT NULL,
    input_dataset_version uuid NOT NULL,
    input_partition_key   text COLLATE "C" NOT NULL,
    input_version         bigint NOT NULL,
    PRIMARY KEY (tenant_id, organization_id, task_id, input_dataset_version, input_partition_key, input_version)
);
COMMENT ON TABLE noetl.task_input IS 'The partitions a task reads, pinned; of a task whose inputs are a payload there are none here.';
CREATE INDEX idx_task_input_dataset
    ON noetl.task_input (input_dataset_version, input_partition_key, tenant_id, organization_id);
