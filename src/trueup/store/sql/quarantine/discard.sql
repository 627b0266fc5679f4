-- discard: quarantined -> discarded. The reconciler ignores it as long as it stays in its state; a sweep deletes the record when the
-- row has left that state. Index: rows_pkey.
update {schema}.rows
   set state = 'discarded', changed_at = {now}
 where reconciler = %(reconciler)s and key = any(%(keys)s::text[]) and state = 'quarantined'
returning key;
