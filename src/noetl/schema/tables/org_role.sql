CREATE TABLE noetl.org_role (
    tenant_id       text COLLATE "C" NOT NULL,
    organization_id text COLLATE "C" NOT NULL,
    role_id         uuid NOT NULL,
    slug            text COLLATE "C" NOT NULL,
    name            text NOT NULL,
    PRIMARY KEY (tenant_id, organization_id, role_id)
);
COMMENT ON TABLE noetl.org_role IS 'Roles an organization made for itself, such as who may read a dataset.';
CREATE UNIQUE INDEX uidx_org_role_slug ON noetl.org_role (slug, tenant_id, organization_id);
