-- The moment this transaction takes for now.
select coalesce(%(now)s::timestamptz, now());
