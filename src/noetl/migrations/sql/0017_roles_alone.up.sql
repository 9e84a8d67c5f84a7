-- A projector has the rights of its own role alone. Where it reads for one organization, as for a snapshot, it must see
-- that one only; without one it sees all, as it did.
CREATE POLICY bound ON noetl.event AS RESTRICTIVE FOR SELECT TO noetl_projector
    USING ((SELECT noetl.tenant()) IS NULL
           OR tenant_id = (SELECT noetl.tenant()) AND organization_id = (SELECT noetl.organization()));
CREATE POLICY bound ON noetl.event_archive AS RESTRICTIVE FOR SELECT TO noetl_projector
    USING ((SELECT noetl.tenant()) IS NULL
           OR tenant_id = (SELECT noetl.tenant()) AND organization_id = (SELECT noetl.organization()));
CREATE POLICY bound ON noetl.snapshot AS RESTRICTIVE FOR SELECT TO noetl_projector
    USING ((SELECT noetl.tenant()) IS NULL
           OR tenant_id = (SELECT noetl.tenant()) AND organization_id = (SELECT noetl.organization()));
