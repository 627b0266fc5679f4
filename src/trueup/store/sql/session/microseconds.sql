-- The moment this transaction takes for now, in microseconds since 1970: readable whatever DateStyle a caller's connection has.
select (extract(epoch from coalesce(%(now)s::timestamptz, now())) * 1000000::numeric)::bigint;
