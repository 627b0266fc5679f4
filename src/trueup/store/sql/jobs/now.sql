select coalesce(%(now)s::timestamptz, now());
