DROP FUNCTION noetl.apply_alerts_v1;
DROP FUNCTION noetl.apply_delivery_v1;
DROP FUNCTION noetl.apply_alert_v1;
DROP TABLE noetl.delivery, noetl.alert, noetl.alert_rules;
