-- How many rows the table has, up to a number.
select count(*) from (select from {table} as t limit %(most)s) as w;
