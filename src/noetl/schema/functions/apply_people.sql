CREATE OR REPLACE FUNCTION noetl.apply_people(said noetl.event) RETURNS void
    LANGUAGE plpgsql AS $$
DECLARE
    meta   jsonb := coalesce(said.meta::jsonb, '{}');
    person uuid := (meta ->> 'user_id')::uuid;
BEGIN
    CASE said.event_type
    WHEN 'org.created' THEN
        INSERT INTO noetl.org (tenant_id, organization_id, name, tenant_name, settings, created_at)
        VALUES (said.tenant_id, said.organization_id, meta ->> 'name', coalesce(meta ->> 'tenant_name', said.tenant_id),
            '{}', said.ingest_time)
        ON CONFLICT (tenant_id, organization_id) DO UPDATE
            SET name = excluded.name, tenant_name = excluded.tenant_name;
    WHEN 'org.settings_changed' THEN
        UPDATE noetl.org SET settings = coalesce(said.context::jsonb -> 'settings', '{}')
        WHERE tenant_id = said.tenant_id AND organization_id = said.organization_id;
    WHEN 'user.added' THEN
        INSERT INTO noetl.app_user (tenant_id, organization_id, user_id, external_id, email, role, added_at)
        VALUES (said.tenant_id, said.organization_id, person, meta ->> 'external_id', meta ->> 'email', meta ->> 'role',
            said.ingest_time)
        ON CONFLICT (tenant_id, organization_id, user_id) DO NOTHING;
    WHEN 'user.role_changed' THEN
        UPDATE noetl.app_user SET role = meta ->> 'role' WHERE tenant_id = said.tenant_id
            AND organization_id = said.organization_id AND user_id = person;
    WHEN 'user.removed' THEN
        DELETE FROM noetl.org_role_membership WHERE tenant_id = said.tenant_id
            AND organization_id = said.organization_id AND user_id = person;
        DELETE FROM noetl.app_user WHERE tenant_id = said.tenant_id AND organization_id = said.organization_id
            AND user_id = person;
    WHEN 'role.created' THEN
        INSERT INTO noetl.org_role (tenant_id, organization_id, role_id, slug, name)
        VALUES (said.tenant_id, said.organization_id, (meta ->> 'role_id')::uuid, meta ->> 'slug', meta ->> 'name')
        ON CONFLICT (tenant_id, organization_id, role_id) DO UPDATE SET name = excluded.name;
    WHEN 'role.granted' THEN
        INSERT INTO noetl.org_role_membership (tenant_id, organization_id, role_id, user_id)
        VALUES (said.tenant_id, said.organization_id, (meta ->> 'role_id')::uuid, person) ON CONFLICT DO NOTHING;
    WHEN 'role.revoked' THEN
        DELETE FROM noetl.org_role_membership WHERE tenant_id = said.tenant_id
            AND organization_id = said.organization_id AND role_id = (meta ->> 'role_id')::uuid AND user_id = person;
    ELSE
        RAISE case_not_found USING MESSAGE = format('no rule says what becomes of people after %s', said.event_type);
    END CASE;
END
$$;
COMMENT ON FUNCTION noetl.apply_people IS 'Changes who belongs to an organization as an event says.';
REVOKE ALL ON FUNCTION noetl.apply_people FROM PUBLIC;
