-- discard: quarantined -> discarded. It is left alone for good while it stays in the state that it was looked at for; sweeps forget it
-- when it has left that. Index: rows_pkey.
update {schema}.rows
   set state = 'discarded', changed_at = {now}
 where reconciler = %(reconciler)s and key = any(%(keys)s::text[]) and state = 'quarantined'
returning key;
