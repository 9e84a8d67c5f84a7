CREATE TABLE noetl.app_user (
    tenant_id       text COLLATE "C" NOT NULL,
    organization_id text COLLATE "C" NOT NULL,
    user_id         uuid NOT NULL,
    external_id     text COLLATE "C",
    email           text COLLATE "C" NOT NULL,
    role            text NOT NULL CHECK (role IN ('reader', 'writer', 'admin')),
    added_at        timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, organization_id, user_id)
);
COMMENT ON TABLE noetl.app_user IS 'The people of an organization.';
CREATE UNIQUE INDEX uidx_app_user_email ON noetl.app_user (email, tenant_id, organization_id);
