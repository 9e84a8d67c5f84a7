CREATE TABLE noetl.dataset_cursor (
    tenant_id       text COLLATE "C" NOT NULL,
    organization_id text COLLATE "C" NOT NULL,
    dataset_version uuid NOT NULL,
    consumer        uuid NOT NULL,
    partition_key   text COLLATE "C" NOT NULL,
    dataset_uuid    uuid NOT NULL,
    version         bigint NOT NULL,
    PRIMARY KEY (tenant_id, organization_id, consumer, dataset_version, partition_key)
);
COMMENT ON TABLE noetl.dataset_cursor IS 'How far a generation has consumed the partitions it reads.';
