-- settle: held -> done, and the row is written (To, Stay); resting, when it would be claimed again immediately, or when this is
-- the write after a failed attempt (`error`).
-- Fence: (reconciler, key, holder, term), the lease not expired. Compare-and-set on the row: its state, and its version, time of
-- change or xmin as they were at the claim. Each row is judged separately: `changed`; `conflict`, when another transaction changed it
-- first; `contested`, when one did and the row still matches this reconciler; `undone`, when it is as it was and yet not changed, which
-- only a trigger can do; `busy`, when another session has locked it (this statement never waits: try again). After the last three the
-- claim is still held. A key that does not come back was lost.
-- Fails for all rows when a trigger has put the state of one back that it had (only of a table with triggers).
-- Index: rows_pkey, and the user's key, row by row as in claim_fresh.sql. A record is found again by the reconciler that was read with
-- it: for a constant, a planner without statistics would read all records of the reconciler for each row. Locks the user's row before
-- its record, and records in the given order, which is that of the keys when there are several: so two statements cannot wait for one
-- another.
with mine as (
  select * from unnest({arrays}) as m({names})
), {held}, changed as (
  update {table} as t set {assignments}
    from held as h
   where h.there and {t_is_h} and ({as_seen}) is true
  returning h.key{kept}
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
   where r.reconciler = v.reconciler and r.key = v.key and v.verdict = 'changed' and v.rest_for is not null
), gone as (
  delete from {schema}.rows as r using verdicts as v
   where r.reconciler = v.reconciler and r.key = v.key and (v.verdict = 'conflict' or v.verdict = 'changed' and v.rest_for is null)
){cleared}
select key, verdict from verdicts;
