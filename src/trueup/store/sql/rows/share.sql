-- How many rows a move or deletion would touch, and how many the table has now, in one snapshot. The table is counted only as
-- far as needed: once it has enough rows for the first number to be within the fraction, it is not read further.
-- Index: one of the user's own for the first number.
with touched as materialized (
  select count(*) as n from {table} as t where {chosen}
), needed as materialized (
  select n, ceil(n::numeric / %(fraction)s::text::numeric)::int8 as size from touched
)
select n, size, (select count(*) from (select from {table} as t limit (select size from needed)) as w) from needed;
