CREATE OR REPLACE FUNCTION noetl.overtaken(
    p_ending text[], f_group integer[], f_table text[], f_execution bigint[], f_id text[], a_group integer[],
    e_append integer[], e_execution bigint[], e_stage bigint[], e_frame bigint[], e_type text[], e_command text[]
) RETURNS TABLE (loser integer, winner integer)
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN QUERY WITH said AS (
        SELECT a_group[e.append] AS grp, e.execution, e.stage, e.frame, e.type, e.command
        FROM unnest(e_append, e_execution, e_stage, e_frame, e_type, e_command)
             AS e (append, execution, stage, frame, type, command)
    ), changes AS (
        SELECT grp, execution, 'command' AS name, command AS id FROM said
        WHERE type IN ('command.claimed', 'command.abandoned', 'command.attempt_failed', 'command.completed',
                       'command.failed')
        UNION ALL
        SELECT grp, execution, 'frame', frame::text FROM said
        WHERE type IN ('frame.dispatched', 'frame.abandoned', 'frame.attempt_failed', 'frame.committed', 'frame.failed',
                       'loop.shard.enqueued', 'loop.shard.abandoned', 'loop.shard.attempt_failed', 'loop.shard.done',
                       'loop.shard.failed')
        UNION ALL
        SELECT grp, execution, 'stage', stage::text FROM said WHERE type = 'stage.closed'
        UNION ALL
        SELECT grp, execution, 'execution', '' FROM said WHERE type = ANY (p_ending)
        UNION ALL
        -- Whoever changes a task fences it, so its fences tell which.
        SELECT f.grp, f.execution, f.name, f.id FROM unnest(f_group, f_execution, f_table, f_id) AS f (grp, execution, name, id)
        WHERE f.name = 'task' AND EXISTS (
            SELECT FROM said
            WHERE said.grp = f.grp AND said.type IN ('task.claimed', 'task.attempt_failed', 'task.abandoned',
                      'task.completed', 'task.skipped', 'task.failed', 'task.cancelled', 'task.retried'))
    ), relies AS (
        SELECT grp, execution, name, id FROM unnest(f_group, f_execution, f_table, f_id) AS f (grp, execution, name, id)
        UNION ALL
        SELECT grp, execution, 'stage', stage::text FROM said WHERE stage IS NOT NULL
        UNION ALL
        SELECT grp, execution, 'execution', '' FROM said
        -- Tasks and partitions outlive the run that caused them.
        WHERE split_part(type, '.', 1) NOT IN ('dag', 'dataset', 'job', 'partition', 'task')
    )
    SELECT DISTINCT relies.grp, changes.grp FROM relies JOIN changes USING (execution, name, id)
    WHERE changes.grp < relies.grp;
END
$$;
COMMENT ON FUNCTION noetl.overtaken IS
    'Names the groups whose lease another group of the same call takes first; fences see only what stood before the call.';
REVOKE ALL ON FUNCTION noetl.overtaken FROM PUBLIC;
