-- settle: held -> done, and the row is written to (To, Stay); resting, when it would be claimed again at once, or when this is
-- what is written after a failed attempt (`error`).
-- Fence: (reconciler, key, holder, term), the lease not passed. Compare-and-set on the row: its state, and its version, time of
-- change or xmin as they were at the claim. Each row is judged alone: `changed`; `conflict`, when somebody else was there first;
-- `contested`, when somebody was and the row is still for this reconciler; `undone`, when it is as it was and yet not changed, which
-- only a trigger can do; `busy`, when somebody has it locked (nothing waits here: try again). After these three the claim is still
-- held. A key that does not come back was lost.
-- Index: rows_pkey, and the user's key, row by row as in claim_fresh.sql. Locks the user's row before what is known about it, and
-- that in the order given, which is that of the keys wherever several are: so two statements cannot wait for one another.
with mine as (
  select * from unnest({arrays}) as m({names})
), {held}, changed as (
  update {table} as t set {assignments}
    from held as h
   where h.there and {t_is_h} and ({as_seen}) is true
  returning h.key
), verdicts as materialized (
  select h.*, {verdict} as verdict
    from held as h
), rested as (
  update {schema}.rows as r
     set state = 'resting', holder = null, due_at = {now} + make_interval(secs => v.rest_for), attempt = greatest(0, coalesce(v.attempt, 0)),
         crashes = case when v.error is null then 0 else r.crashes end, alone = false, started = false,
         occasion = case when v.error is not null then r.occasion end, changed_at = {now}, reason = v.reason,
         errors = case when v.error is null then '[]'
                       else case when jsonb_array_length(r.errors) >= %(most_errors)s then r.errors - 1 else r.errors end || v.error::jsonb end
    from verdicts as v
   where r.reconciler = %(reconciler)s and r.key = v.key and v.verdict = 'changed' and v.rest_for is not null
), gone as (
  delete from {schema}.rows as r using verdicts as v
   where r.reconciler = %(reconciler)s and r.key = v.key and (v.verdict = 'conflict' or v.verdict = 'changed' and v.rest_for is null)
){cleared}
select key, verdict from verdicts;
