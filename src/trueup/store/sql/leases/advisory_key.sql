-- The advisory key of a name, and the backend that answers: behind a pooler it is not the one the client knows from the connection.
select hashtextextended(%(name)s, 0), pg_backend_pid();
