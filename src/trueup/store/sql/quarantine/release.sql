-- release: quarantined or discarded -> resting, due now, with all attempts available again and its failures deleted. The record stays:
-- passes between two sweeps look only at rows with a record, so a worker that is woken takes it immediately.
-- Fence: none is needed, because no worker holds it; a row that has left these states does not come back. Index: rows_pkey.
with released as (
  update {schema}.rows
     set state = 'resting', due_at = {now}, attempt = 0, crashes = 0, alone = false, started = false, changed_at = {now}, reason = null, errors = '[]'
   where reconciler = %(reconciler)s and key = any(%(keys)s::text[]) and state = any(%(states)s::text[])
  returning key
), woken as (
  select count(pg_notify(%(channel)s, 'reconcilers')) as n from (select from released limit 1) as any_released
)
select key from released, woken;
