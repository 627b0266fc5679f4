-- Notes what PostgreSQL refuses about a job, as it is now. Index: jobs_pkey.
insert into {schema}.job_refusals as r (job_id, term, state, move, error, refusals, refused_at)
select j.id, j.term, j.state, %(move)s::text, %(error)s::text, 1, {now} from {schema}.jobs as j where j.id = %(id)s::bigint
on conflict (job_id) do update
   set term = excluded.term, state = excluded.state, move = excluded.move, error = excluded.error, refused_at = excluded.refused_at,
       refusals = case when r.term = excluded.term and r.state = excluded.state then r.refusals + 1 else 1 end;
