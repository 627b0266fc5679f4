-- Records the end of a whole sweep; if it walked past all rows, how many with records it passed, and the table's write counters when
-- it began. Index: reconcilers_pkey.
update {schema}.reconcilers
   set last_swept_at = {now}, last_error = null, last_failed_at = null, failures = 0,
       walked_at = case when %(past)s::bigint is null then walked_at else {now} end, walked_past = coalesce(%(past)s::bigint, walked_past),
       walked_writes = case when %(past)s::bigint is null then walked_writes else %(writes)s::bigint end
 where name = %(name)s;
