-- discard: dead -> cancelled, by a person. Index: history_id.
update {schema}.history set state = 'cancelled', reason = %(reason)s, finished_at = coalesce(%(now)s::timestamptz, now())
 where state = 'dead' and id = any(%(ids)s::bigint[])
returning id;
