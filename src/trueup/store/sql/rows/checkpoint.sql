-- checkpoint: writes a claimed row in the middle of its handler's run; it stays held. One row, as one array element each.
-- Fence: (reconciler, key, holder, term), the lease not expired; compare-and-set as in change.sql. Returns the values to compare with
-- from now on. The time of its last change stays as it is: the row must still be stale, or due, if the handler fails.
-- Index: rows_pkey, and the user's key. Locks as in change.sql.
with mine as (
  select * from unnest({arrays}) as m({names})
), {held}, changed as (
  update {table} as t set {assignments}
    from held as h
   where h.there and {t_is_h} and ({as_seen}) is true
  returning h.key, {seen} as trueup_seen
)
select {verdict}, (select c.trueup_seen::text from changed as c where c.key = h.key)
  from (select count(*), {plainly} from changed) as one, held as h;
