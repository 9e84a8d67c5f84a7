-- The only way into the ledger. One call takes many appends of one organization, decides each group of them, numbers
-- the survivors, writes them and changes the rows of open work they speak of; a caller can neither choose positions
-- nor change a row.
--
-- Outcomes: 0 written, 1 repeated, 2 wrong expected version, 3 key reused with other content, 4 recorded already,
-- 5 payload collected, 6 lease lost, 7 refused with its group.
CREATE OR REPLACE FUNCTION noetl.append(
    p_tenant text, p_organization text, p_key_ttl interval, p_has_once boolean, p_has_payload boolean,
    p_work text[], fences noetl.lease_fence[], appends noetl.new_append[], events noetl.new_event[]
) RETURNS TABLE(outcome integer, first_version bigint, first_position bigint, event_ids bigint[])
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
DECLARE
    own    noetl.new_append;
    fence  noetl.lease_fence;
    fresh  integer := 0;
    now_at timestamptz;
BEGIN
    PERFORM pg_advisory_xact_lock_shared(noetl.write_path_lock());
    IF (SELECT way.mode FROM noetl.write_path AS way) <> 'ledger' THEN
        RAISE SQLSTATE 'NE001' USING MESSAGE = 'events do not go straight to the ledger now';
    END IF;
    IF p_tenant IS NULL OR p_organization IS NULL OR p_tenant = '' OR p_organization = ''
       OR coalesce(noetl.tenant(), p_tenant) <> p_tenant
       OR coalesce(noetl.organization(), p_organization) <> p_organization THEN
        RAISE insufficient_privilege USING MESSAGE = 'append outside the tenant and organization of this transaction';
    END IF;
    PERFORM set_config('noetl.tenant', p_tenant, true), set_config('noetl.organization', p_organization, true);

    <<short>>
    BEGIN
        -- A step that ended well and what follows it, or plain facts.
        EXIT short WHEN cardinality(appends) <> 1 OR cardinality(fences) > 1 OR p_has_once OR p_has_payload
            OR NOT p_work <@ ARRAY['command.completed', 'command.issued'];
        own := appends[1];
        fence := fences[1];
        EXIT short WHEN fence.mode <> 1 OR fence.table_name <> 'command';

        IF own.keys > 0 THEN
            INSERT INTO noetl.idempotency_key (tenant_id, organization_id, key, content_digest, execution_id, event_id,
                                               ordinal, event_ids, expires_at)
            SELECT p_tenant, p_organization, e.idempotency_key, own.digest, e.execution_id, e.event_id, e.ordinal,
                   own.event_ids, now() + p_key_ttl
            FROM unnest(events) AS e WHERE e.idempotency_key IS NOT NULL ORDER BY e.idempotency_key COLLATE "C"
            ON CONFLICT DO NOTHING;
            GET DIAGNOSTICS fresh = ROW_COUNT;
            EXIT short WHEN fresh < own.keys;
        END IF;
        IF fence.mode = 1 THEN
            PERFORM FROM noetl.command AS held
            WHERE held.tenant_id = p_tenant AND held.organization_id = p_organization
              AND held.execution_id = fence.execution_id AND held.command_id = fence.id
              AND held.attempt = fence.attempt AND held.lease_token = fence.token
              AND held.lease_until > clock_timestamp() FOR UPDATE;
            EXIT short WHEN NOT FOUND;
        END IF;
        UPDATE noetl.stream AS known SET version = known.version + own.size
        WHERE known.tenant_id = p_tenant AND known.organization_id = p_organization
          AND known.stream_id = own.stream_id AND known.version = coalesce(own.expected_version, known.version)
        RETURNING known.version - own.size INTO first_version;
        EXIT short WHEN NOT FOUND;

        -- The time is taken once the head is held: it never runs backwards within a shard.
        UPDATE noetl.shard AS head SET position = head.position + own.size,
                                       last_ingest = greatest(head.last_ingest, clock_timestamp())
        WHERE head.shard = own.shard
        RETURNING head.position - own.size, head.last_ingest INTO first_position, now_at;
        INSERT INTO noetl.event (
            execution_id, event_id, position, stream_version, event_time, ingest_time, causation_id,
            parent_execution_id, stage_id, frame_id, loop_id, current_index, schema_version, shard, tenant_id,
            organization_id, stream_id, aggregate_type, aggregate_id, event_type, schema_name, producer,
            correlation_id, idempotency_key, catalog_id, node_name, node_type, status, command_id, shard_id,
            payload_sha256, fields_sha256, error, meta, context, result, current_item, payload_ref, fields_ref)
        SELECT e.execution_id, e.event_id, first_position + e.ordinal, first_version + e.ordinal, e.event_time, now_at,
               e.causation_id, e.parent_execution_id, e.stage_id, e.frame_id, e.loop_id, e.current_index,
               e.schema_version, own.shard, p_tenant, p_organization, own.stream_id, e.aggregate_type, e.aggregate_id,
               e.event_type, e.schema_name, e.producer, e.correlation_id, e.idempotency_key, e.catalog_id, e.node_name,
               e.node_type, e.status, e.command_id, e.shard_id, e.payload_sha256, e.fields_sha256, e.error, e.meta,
               e.context, e.result, e.current_item, e.payload_ref, e.fields_ref
        FROM unnest(events) AS e;
        -- The rules of `noetl.apply_work` for these two types.
        IF 'command.completed' = ANY (p_work) THEN
            DELETE FROM noetl.command AS done USING unnest(events) AS e
            WHERE done.tenant_id = p_tenant AND done.organization_id = p_organization
              AND done.execution_id = e.execution_id AND done.command_id = e.command_id
              AND e.event_type = 'command.completed';
        END IF;
        IF 'command.issued' = ANY (p_work) THEN
            INSERT INTO noetl.command (tenant_id, organization_id, execution_id, command_id, step_name, tool_kind,
                status, attempt, worker, lease_token, lease_seconds, lease_until, last_heartbeat, available_at,
                stage_id, loop_id, child_execution_id, issued_event_id, near)
            SELECT p_tenant, p_organization, e.execution_id, e.command_id, e.node_name, e.meta ->> 'tool_kind',
                   CASE WHEN said.worker IS NOT NULL THEN 'CLAIMED'
                        WHEN said.child_execution_id IS NOT NULL THEN 'SUSPENDED' ELSE 'PENDING' END,
                   coalesce(said.attempt, 0), said.worker, said.lease_token, said.lease_seconds,
                   CASE WHEN said.worker IS NOT NULL THEN now_at + make_interval(secs => said.lease_seconds) END,
                   CASE WHEN said.worker IS NOT NULL THEN now_at END,
                   now_at, e.stage_id, e.loop_id, said.child_execution_id, e.event_id, said.near
            FROM unnest(events) AS e, json_to_record(e.meta) AS said (worker text, attempt integer, lease_token uuid,
                lease_seconds double precision, child_execution_id bigint, near jsonb)
            WHERE e.event_type = 'command.issued' AND NOT EXISTS (
                SELECT FROM unnest(events) AS ended
                WHERE ended.event_type = 'command.completed' AND ended.command_id = e.command_id);
        END IF;
        outcome := 0;
        first_version := first_version + 1;
        first_position := first_position + 1;
        RETURN NEXT;
        RETURN;
    END;

    IF fresh > 0 THEN
        -- The short way took keys and then met something unusual: the long way begins as if nothing had been.
        DELETE FROM noetl.idempotency_key AS known
        WHERE known.tenant_id = p_tenant AND known.organization_id = p_organization
          AND known.expires_at = now() + p_key_ttl AND known.event_id = ANY (own.event_ids)
          AND known.key IN (SELECT e.idempotency_key FROM unnest(events) AS e);
    END IF;
    RETURN QUERY SELECT * FROM noetl.append_groups(
        p_tenant, p_organization, p_key_ttl, p_has_once, p_has_payload, p_work, fences, appends, events);
END
$$;
COMMENT ON FUNCTION noetl.append IS
    'Decides, numbers and writes appends of one organization; the only way in.';
REVOKE ALL ON FUNCTION noetl.append FROM PUBLIC;
GRANT EXECUTE ON FUNCTION noetl.append TO noetl_runtime;
