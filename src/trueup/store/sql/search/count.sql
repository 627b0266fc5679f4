-- How many ended jobs are in a state, counted up to `most` and no further. Reads that many of the state's partitions.
select count(*) from (select from {schema}.history where state = %(state)s limit %(most)s::int) as counted;
