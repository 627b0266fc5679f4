-- The names of the schedules, for the message about one that does not exist. Index: schedules_pkey.
select s.name from {schema}.schedules as s order by s.name limit 1000;
