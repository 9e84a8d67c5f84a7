CREATE VIEW noetl.tenant WITH (security_invoker = true) AS
SELECT tenant_id, max(tenant_name) AS name FROM noetl.org GROUP BY tenant_id;
COMMENT ON VIEW noetl.tenant IS 'Who has organizations here, as the organizations that may be seen call them.';
