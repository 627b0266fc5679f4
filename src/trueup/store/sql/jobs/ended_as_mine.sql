-- After a lost reply: which of these claims did this holder finish itself? Index: history_id, jobs_pkey.
-- A job that went back to the queue keeps its term; a rescue would have counted a crash. One that was claimed again since counts as lost.
-- One that a rescue buried or dropped has our holder id too, but its last error says that this attempt was lost.
with mine as (
  select * from unnest(%(ids)s::bigint[], %(terms)s::bigint[], %(crashes)s::int[]) as m(id, term, crashes)
)
select h.id, h.state from {schema}.history as h join mine on h.id = mine.id and h.term = mine.term
 where h.id = any(%(ids)s::bigint[]) and h.holder = %(holder)s
   and (h.errors -> -1 ->> 'type'::text = 'WorkerLost' and h.errors -> -1 ->> 'attempt'::text = h.attempt::text) is not true
union
select j.id, j.state from {schema}.jobs as j join mine on j.id = mine.id and j.term = mine.term and j.crashes = mine.crashes
 where j.id = any(%(ids)s::bigint[]) and j.state = 'queued';
