-- Notes what PostgreSQL says when it refuses what a scan writes about itself; the next pass that completes forgets it. Touches nothing
-- that decides anything, and nothing that may be what is refused. Index: scans_pkey.
update {schema}.scans set error = %(error)s where name = %(name)s;
