-- The UTC offset of each of these zones at the beginning of each month of the next two years, by the server's time zone data, in
-- seconds; no rows for a zone that it does not know.
select z.zone, m.moment, extract(epoch from (m.moment at time zone z.zone) - (m.moment at time zone 'UTC'))::float8
  from unnest(%(zones)s::text[]) as z(zone)
  join pg_timezone_names as k on k.name = z.zone,
       generate_series(date_trunc('month', {now}, 'UTC'), {now} + make_interval(years => 2), make_interval(months => 1)) as m(moment);
