CREATE TABLE noetl.catalog (
    tenant_id       text COLLATE "C" NOT NULL,
    organization_id text COLLATE "C" NOT NULL,
    catalog_id      text COLLATE "C" NOT NULL,
    path            text COLLATE "C" NOT NULL,
    version         integer NOT NULL,
    kind            text NOT NULL,
    digest          text COLLATE "C" NOT NULL,
    content         text NOT NULL,
    registered_at   timestamptz NOT NULL,
    removed         boolean NOT NULL DEFAULT false,
    PRIMARY KEY (tenant_id, organization_id, catalog_id)
);
COMMENT ON TABLE noetl.catalog IS 'Versions of playbooks: immutable, numbered from 1 per path, written with their event.';
CREATE UNIQUE INDEX uidx_catalog_path_version ON noetl.catalog (tenant_id, organization_id, path, version);
