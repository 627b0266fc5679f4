-- Everything a holder has claimed and not finished, whether it knows of it or not (a claim's reply may be lost). Index: jobs_held.
select id, kind, queue, lane, key, args::text, attempt, max_attempts, crashes, term, run_at, enqueued_at, claimed_at, schedule, due_at,
       cancel_requested_at is not null
  from {schema}.jobs where holder = %(holder)s and state = 'running' order by rank, id;
