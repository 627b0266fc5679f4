-- Some of the jobs that a holder has claimed and not finished, as a claim returns them. Index: jobs_pkey or jobs_held.
select id, kind, queue, lane, key, args::text, attempt, max_attempts, crashes, term, run_at, enqueued_at, claimed_at, rank, schedule, due_at,
       cancel_requested_at is not null, exhausting::text, meta::text
  from {schema}.jobs where id = any(%(ids)s::bigint[]) and holder = %(holder)s and state = 'running' order by rank, id;
