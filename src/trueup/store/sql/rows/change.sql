-- settle: held -> done, and the row is written to (To, Stay); resting, when it would be claimed again at once.
-- Fence: (reconciler, key, holder, term), the lease not passed. Compare-and-set on the row: its state, and its version, time of
-- change or xmin as they were at the claim. Each row is judged alone: `changed`; `conflict`, when somebody else was there first;
-- `busy`, when somebody has it locked (nothing waits here: try again); a key that does not come back was lost.
-- Index: rows_pkey, and the user's key. Locks the user's row before what is known about it.
with mine as (
  select * from unnest({arrays}) as m({names})
), {held}, changed as (
  update {table} as t set {assignments}
    from held as h
   where h.there and {t_is_h} and {as_seen}
  returning h.key
), verdicts as materialized (
  select h.key, h.rest_for, case when c.key is not null then 'changed'
                                 when not h.there and exists (select from {table} as t where {t_is_h}) then 'busy' else 'conflict' end as verdict
    from held as h left join changed as c on c.key = h.key
), rested as (
  update {schema}.rows as r
     set state = 'resting', holder = null, due_at = {now} + make_interval(secs => v.rest_for), attempt = 0, crashes = 0, alone = false,
         changed_at = {now}, reason = null, errors = '[]'
    from verdicts as v
   where r.reconciler = %(reconciler)s and r.key = v.key and v.verdict = 'changed' and v.rest_for is not null
), gone as (
  delete from {schema}.rows as r using verdicts as v
   where r.reconciler = %(reconciler)s and r.key = v.key and (v.verdict = 'conflict' or v.verdict = 'changed' and v.rest_for is null)
){cleared}
select key, verdict from verdicts;
