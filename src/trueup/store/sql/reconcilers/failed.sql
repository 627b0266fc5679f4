-- Records the error that ended a sweep; it stays until a sweep succeeds. Index: reconcilers_pkey.
update {schema}.reconcilers set last_error = %(error)s, last_failed_at = {now}, failures = failures + 1 where name = %(name)s;
