-- Which of these lanes have a job that is due. Index: jobs_ready.
select lane from unnest(%(lanes)s::text[]) as want(lane)
 where exists (select from {schema}.jobs as j
                where j.state = 'queued' and j.lane = want.lane and j.run_at <= coalesce(%(now)s::timestamptz, now()));
