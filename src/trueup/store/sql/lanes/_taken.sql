ready as materialized (
  select j.ctid as slot from {schema}.jobs as j
   where j.ctid = any(array(select slot from (select slot, sum(bytes) over (order by nth, turn, rank, id) - bytes as bytes_before from chosen) as c
                           where bytes_before < %(bytes)s)) and j.state = 'queued'
     for update skip locked
), claimed as (
  update {schema}.jobs
     set state = 'running', holder = %(holder)s, attempt = attempt + 1,
         term = greatest(term + 1, (select {schema}.term_floor())), claimed_at = coalesce(%(now)s::timestamptz, clock_timestamp())
   where ctid = any(array(select slot from ready))
  returning *
)
