-- no transaction
-- Jobs whose moment no client could read stopped the worker that claimed them. From here on such a moment is refused when a job is
-- stored, by whatever program. Those that are there are moved to the nearest moment that can be read.
update {schema}.jobs
   set run_at = greatest('1970-01-01 00:00:00+00'::timestamptz, least(run_at, '9000-01-01 00:00:00+00'::timestamptz)),
       rank = greatest('1900-01-01 00:00:00+00'::timestamptz, least(rank, '9000-01-01 00:00:00+00'::timestamptz))
 where run_at < '1970-01-01 00:00:00+00'::timestamptz or run_at > '9000-01-01 00:00:00+00'::timestamptz;
alter table {schema}.jobs drop constraint if exists jobs_run_at;
alter table {schema}.jobs add constraint jobs_run_at
  check (run_at >= '1970-01-01 00:00:00+00'::timestamptz and run_at <= '9000-01-01 00:00:00+00'::timestamptz) not valid;
alter table {schema}.jobs validate constraint jobs_run_at;
