-- The job that has a unique key within its window.
select w.job_id, coalesce((select state from {schema}.jobs where id = w.job_id),
                          (select state from {schema}.history where id = w.job_id order by finished_at desc limit 1), 'finished') as state
  from {schema}.unique_windows as w
 where w.kind = %(kind)s and w.unique_key = %(unique_key)s and w.taken_until > coalesce(%(now)s::timestamptz, now());
