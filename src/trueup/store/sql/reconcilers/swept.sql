-- A whole sweep has ended. Index: reconcilers_pkey.
update {schema}.reconcilers set last_swept_at = {now}, last_error = null, last_failed_at = null, failures = 0 where name = %(name)s;
