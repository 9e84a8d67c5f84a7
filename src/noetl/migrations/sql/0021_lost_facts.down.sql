DROP TABLE noetl.lost_fact;
