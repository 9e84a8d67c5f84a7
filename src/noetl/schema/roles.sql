-- The roles that NoETL's processes log in as. None of them owns anything; `policies.sql` says what each may see and do.
CREATE SCHEMA IF NOT EXISTS noetl;

DO $$
DECLARE
    role_name text;
BEGIN
    FOREACH role_name IN ARRAY ARRAY[
        'noetl_runtime',      -- serves one organization at a time: API, workers, tools
        'noetl_projector',    -- reads the events of all tenants and writes projections
        'noetl_retention',    -- archives and drops old partitions
        'noetl_reaper',       -- finds work of all tenants whose lease ran out, and what is due
        'noetl_relay',        -- publishes events of all tenants to the stream
        'noetl_materializer', -- writes events that came through the stream
        'noetl_operator'      -- takes answers of curated views, and nothing else
    ] LOOP
        BEGIN
            EXECUTE format('CREATE ROLE %I LOGIN NOINHERIT NOSUPERUSER NOCREATEDB NOCREATEROLE NOBYPASSRLS', role_name);
        EXCEPTION WHEN duplicate_object OR unique_violation THEN
            NULL; -- roles belong to the whole server: another database of it made this one
        END;
        -- One login may take each role where a server has a single account for NoETL. From PostgreSQL 16 on, whoever
        -- creates a role may grant it but not take it, and need not inherit what it may see.
        IF current_setting('server_version_num')::integer < 160000 THEN
            IF NOT pg_has_role(current_user, role_name, 'MEMBER') THEN
                EXECUTE format('GRANT %I TO current_user', role_name);
            END IF;
        ELSIF NOT pg_has_role(current_user, role_name, 'SET') THEN
            EXECUTE format('GRANT %I TO current_user WITH SET TRUE, INHERIT FALSE', role_name);
        END IF;
        EXECUTE format('GRANT USAGE ON SCHEMA noetl TO %I', role_name);
    END LOOP;
END
$$;
