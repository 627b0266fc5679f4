-- A whole sweep has ended; if it walked past all rows, how many known ones it passed over, and how often the table had been written to
-- when it began. Index: reconcilers_pkey.
update {schema}.reconcilers
   set last_swept_at = {now}, last_error = null, last_failed_at = null, failures = 0,
       walked_at = case when %(past)s::bigint is null then walked_at else {now} end, walked_past = coalesce(%(past)s::bigint, walked_past),
       walked_writes = case when %(past)s::bigint is null then walked_writes else %(writes)s::bigint end
 where name = %(name)s;
