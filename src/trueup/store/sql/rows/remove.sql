-- settle: held -> done, and the row is deleted. Fence, compare-and-set, verdicts and locks as in change.sql.
-- Index: rows_pkey, and the user's key.
with mine as (
  select * from unnest({arrays}) as m({names})
), {held}, changed as (
  delete from {table} as t using held as h
   where h.there and {t_is_h} and ({as_seen}) is true
  returning h.key
), verdicts as materialized (
  select h.*, {verdict} as verdict
    from held as h
), gone as (
  delete from {schema}.rows as r using verdicts as v
   where r.reconciler = v.reconciler and r.key = v.key and v.verdict in ('changed', 'conflict')
){cleared}
select key, verdict from verdicts;
