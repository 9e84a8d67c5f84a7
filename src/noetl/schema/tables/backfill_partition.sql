CREATE TABLE noetl.backfill_partition (
    tenant_id       text COLLATE "C" NOT NULL,
    organization_id text COLLATE "C" NOT NULL,
    backfill_id     bigint NOT NULL,
    ordinal         integer NOT NULL,
    partition_key   text COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant_id, organization_id, backfill_id, ordinal)
);
COMMENT ON TABLE noetl.backfill_partition IS 'The partitions of backfills that have not ended, in the order they are made.';
