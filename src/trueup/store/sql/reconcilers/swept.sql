-- A whole sweep has ended. Index: reconcilers_pkey.
update {schema}.reconcilers set last_swept_at = {now} where name = %(name)s;
