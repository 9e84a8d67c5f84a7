CREATE TABLE noetl.openlineage_cursor (
    tenant_id       text COLLATE "C" NOT NULL,
    organization_id text COLLATE "C" NOT NULL,
    receiver        text COLLATE "C" NOT NULL,
    shard           smallint NOT NULL,
    position        bigint NOT NULL,
    moved_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (tenant_id, organization_id, receiver, shard)
) WITH (fillfactor = 70);
COMMENT ON TABLE noetl.openlineage_cursor IS 'Up to which position of each shard a receiver was told about tasks; moved only after it took the news.';
