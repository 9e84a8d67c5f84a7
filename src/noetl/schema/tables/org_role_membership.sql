CREATE TABLE noetl.org_role_membership (
    tenant_id       text COLLATE "C" NOT NULL,
    organization_id text COLLATE "C" NOT NULL,
    role_id         uuid NOT NULL,
    user_id         uuid NOT NULL,
    PRIMARY KEY (tenant_id, organization_id, role_id, user_id)
);
COMMENT ON TABLE noetl.org_role_membership IS 'Who has which role.';
CREATE INDEX idx_org_role_membership_user ON noetl.org_role_membership (user_id, tenant_id, organization_id);
