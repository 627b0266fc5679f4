-- A page of keys of rows that were in quarantine at a given time, and still are, oldest first: for commands over all of them.
-- Index: rows_set_aside.
select key from {schema}.rows
 where reconciler = %(reconciler)s and state in ('quarantined', 'discarded') and state = 'quarantined' and changed_at <= %(until)s
 order by changed_at limit %(limit)s;
