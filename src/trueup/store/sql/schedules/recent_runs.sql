-- How the latest runs of a schedule ended, newest first. Index: ticks_pkey, history_id.
select h.state from (select job_id from {schema}.ticks where schedule = %(name)s and job_id is not null order by due_at desc limit %(most)s) as t
  join {schema}.history as h on h.id = t.job_id
 order by h.id desc;
