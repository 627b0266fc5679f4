-- Stores the progress of a running job. Fence: (id, holder, term). No row back: the claim was lost.
update {schema}.jobs
   set progress = jsonb_build_object('percent', %(percent)s::float8, 'note', %(note)s::text, 'at', coalesce(%(now)s::timestamptz, clock_timestamp()))
 where id = %(id)s and term = %(term)s and holder = %(holder)s and state = 'running'
returning id;
