DROP FUNCTION noetl.sweep_rows_v1;
DROP FUNCTION noetl.gone_generations_v1;
DROP FUNCTION noetl.apply_pins_v1;
DROP TABLE noetl.payload_hold, noetl.trimmed_version, noetl.retired_generation, noetl.sweep, noetl.retention_policy, noetl.pin;
