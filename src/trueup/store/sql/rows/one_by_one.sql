-- Runs another statement over rows, a part of them at a time, so that a refused row is refused alone: see the function.
select key, verdict, nth, code, said, violated from {schema}.one_by_one(%(statement)s::text, %(count)s::int, %(seconds)s::float8, %(changed)s::oid);
