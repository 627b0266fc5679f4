-- Seconds until the next row that rests, or whose lease ends, is due. Index: rows_due.
select extract(epoch from min(due_at) - {now})::float8 from {schema}.rows where reconciler = %(reconciler)s and state in ('held', 'resting');
