DROP TABLE noetl.decision_begun;
