-- Claims and looks step through the priorities of a lane and walk each one in the order its jobs become due, so that they
-- never meet a job that is not due. The indexes they used before stay for older workers until the post step.

create index jobs_due on {schema}.jobs (lane, priority, run_at, id) where state = 'queued';
create index jobs_due_by_key on {schema}.jobs (lane, key, priority, run_at, id) where state = 'queued' and lane <> queue;
