-- Marks claimed rows as a claim does (claimed_as, the user's own lease columns): for those that were claimed unmarked, because the
-- database had refused to mark one of them. Each row is judged separately: `changed`, with the row as it is then; `busy` or `conflict`,
-- when it is no longer free; a key that does not come back was lost.
-- Fence: (reconciler, key, holder, term), the lease not expired. Index: rows_pkey, and the user's key. Locks as in change.sql.
with mine as (
  select * from unnest({arrays}) as m({names})
), {held}, changed as (
  update {table} as t set {marks}
    from held as h
   where h.there and {t_is_h} and (h.key in (select key from there where as_left)) is true
  returning h.key, {seen} as trueup_seen, {columns}{kept}
)
select c.key, 'changed', c.trueup_seen::text, {given} from (select count(*), {plainly} from changed) as one, changed as c
union all
select h.key, case when not h.there and exists (select from {table} as t where {t_is_h}) then 'busy'
                   when (h.key in (select key from there where as_left)) is true then 'undone' else 'conflict' end, null, {nothing}
  from held as h
 where (h.key in (select key from changed)) is not true;
