-- cancel: queued -> cancelled, by a person or by code. For running jobs see request_stop.
-- Index: jobs_pkey.
with gone as (
  delete from {schema}.jobs where id = any(%(ids)s::bigint[]) and state = 'queued' returning *
)
insert into {schema}.history ({carried}, errors, state, finished_at, reason)
select {carried}, errors, 'cancelled', {ended}, %(reason)s from gone
returning id;
