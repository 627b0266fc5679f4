-- The value of every check and its threshold; the function computes both, so that the view `health` says the same.
-- It reads jobs_due, schedules_due, rows_due, rows_set_aside and history_finished_at.
select name, severity, value, allowed, detail from {schema}.health_at({now});
