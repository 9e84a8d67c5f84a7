-- Those who decide look at both; a reader of the ledger looks at the ledger.
CREATE VIEW noetl.known_event WITH (security_invoker = true) AS
    SELECT * FROM noetl.event UNION ALL SELECT * FROM noetl.pending_event;
COMMENT ON VIEW noetl.known_event IS 'Every decided event, in the ledger or on its way there.';
