-- Quarantined or discarded rows, of one reconciler or of all, latest first, up to a number. Index: rows_set_aside.
select reconciler, key, state, was_state, attempt, crashes, changed_at, reason, errors -> -1 as error
  from {schema}.rows
 where state in ('quarantined', 'discarded') and state = %(state)s and (%(reconciler)s::text is null or reconciler = %(reconciler)s)
 order by changed_at desc, reconciler, key limit %(limit)s;
