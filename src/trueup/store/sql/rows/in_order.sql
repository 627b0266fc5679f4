-- Locks the records of claims which the next statements of the transaction settle, in the given order, which is that of the keys. Two
-- settlements of the same rows, one of them by a holder that has lost them, then cannot wait for one another. Answers nothing.
-- Index: rows_pkey.
select null::text as key, null::text as verdict
  from unnest(%(keys)s::text[]) as m(key), lateral (
    select from {schema}.rows as r where r.reconciler = %(reconciler)s and r.key = m.key limit 1 for update
  ) as r
having count(*) < 0;
