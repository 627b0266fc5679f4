-- Rows of a reconciler whose last attempt failed, latest first. Reads all records of its rows. Index: rows_pkey.
select key, state, attempt, changed_at, case when state = 'resting' then due_at end as again_at, reason, errors -> -1 as error
  from {schema}.rows
 where reconciler = %(name)s and state in ('held', 'resting', 'quarantined') and errors <> '[]'
 order by changed_at desc, key limit %(limit)s;
