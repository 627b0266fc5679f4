-- settle: as rest.sql, for rows that the claim has marked: what it wrote (claimed_as, the user's own lease columns) is undone.
-- Fence: (reconciler, key, holder, term), the lease not expired; the row is written only while it is as the claim left it.
-- Index: rows_pkey, and the user's key. Locks as in change.sql.
with mine as (
  select * from unnest({arrays}) as m({names})
), {held}, back as (
  update {table} as t set {assignments}
    from held as h
   where h.there and {t_is_h} and ({is_left}) is true
), verdicts as materialized (
  select h.*, case when not h.there and exists (select from {table} as t where {t_is_h}) then 'busy' else 'changed' end as verdict from held as h
), rested as (
  update {schema}.rows as r set {rested}
    from verdicts as m
   where r.reconciler = m.reconciler and r.key = m.key and m.state <> 'gone' and m.verdict = 'changed'
), gone as (
  delete from {schema}.rows as r using verdicts as m
   where r.reconciler = m.reconciler and r.key = m.key and m.state = 'gone' and m.verdict = 'changed'
)
select key, verdict from verdicts;
