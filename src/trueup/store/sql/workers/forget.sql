-- Rescued workers with nothing left to rescue are forgotten. Index: jobs_held.
delete from {schema}.workers as w
 where rescued_at is not null and not exists (select from {schema}.jobs as j where j.holder = w.holder and j.state = 'running')
returning holder, host, pid;
