-- The advisory key of a name, and which backend answers: behind a pooler it is not the one the client was told about.
select hashtextextended(%(name)s, 0), pg_backend_pid();
