-- A sweep was ended by an error, which stays until one goes through. Index: reconcilers_pkey.
update {schema}.reconcilers set last_error = %(error)s, last_failed_at = {now}, failures = failures + 1 where name = %(name)s;
