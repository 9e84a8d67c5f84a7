CREATE OR REPLACE FUNCTION noetl.is_plain_claim(own noetl.schedule_fact, several uuid[]) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT own.said = 'slot.claimed' AND own.attempt = 1 AND own.next_plan IS NOT NULL
       AND own.schedule_id <> ALL (several)
$$;
COMMENT ON FUNCTION noetl.is_plain_claim IS
    'Tells whether this is the claim of a planned moment and nothing else happens to its schedule, as to several others.';
REVOKE ALL ON FUNCTION noetl.is_plain_claim FROM PUBLIC;
