-- What is paused, the oldest first.
select what, name, paused_at, paused_by, reason from {schema}.pauses order by paused_at, what, name;
