-- Stores when the lane may start its next job, and which key had the last turn.
update {schema}.lanes
   set next_start_at = coalesce(%(next_start_at)s::timestamptz, next_start_at), last_key = coalesce(%(last_key)s, last_key)
 where lane = %(lane)s;
