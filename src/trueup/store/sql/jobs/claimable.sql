-- Which due jobs of a lane a claim might take, for when it is refused because of one of them; without those known to be refused.
-- Index: jobs_due.
select j.id, j.kind from {schema}.jobs as j
 where j.state = 'queued' and j.lane = %(lane)s and j.run_at <= {now} and j.kind = any(%(kinds)s::text[])
   and j.id <> all(%(refused)s::bigint[])
 order by j.priority, j.run_at, j.id limit %(most)s;
