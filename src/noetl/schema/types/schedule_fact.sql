-- What an event of a schedule's stream says, with all that any of them may say about a slot.
CREATE TYPE noetl.schedule_fact AS (
    schedule_id uuid, said text, execution_id bigint, version bigint, said_at timestamptz, error text,
    plan_time timestamptz, next_plan timestamptz, last_plan timestamptz, count bigint,
    attempt integer, max_attempts integer, worker text, lease_token uuid, lease_seconds double precision, manual boolean,
    run_id bigint, rows_affected bigint, skipped_reason text, error_code text, delay_seconds double precision,
    succeeded_before timestamptz, failed_before timestamptz, meta json, context json, result json
);
COMMENT ON TYPE noetl.schedule_fact IS 'An event of a schedule''s stream, read.';
