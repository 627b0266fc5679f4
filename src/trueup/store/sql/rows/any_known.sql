-- Whether anything is known about rows of this reconciler. Index: rows_pkey.
select exists (select from {schema}.rows where reconciler = %(reconciler)s);
