-- How many rows a move or deletion would touch, up to a number. Index: one of the user's own.
select count(*) from (select from {table} as t where {chosen} limit %(most)s) as w;
