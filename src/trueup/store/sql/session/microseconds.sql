-- The time that this transaction takes as now, in microseconds since 1970: readable with any DateStyle of a caller's connection.
select (extract(epoch from coalesce(%(now)s::timestamptz, now())) * 1000000::numeric)::bigint;
