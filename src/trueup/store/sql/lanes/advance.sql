-- Notes when the lane may start its next job, and whose turn was last.
update {schema}.lanes set next_start_at = coalesce(%(next_start_at)s::timestamptz, next_start_at), last_key = %(last_key)s where lane = %(lane)s;
