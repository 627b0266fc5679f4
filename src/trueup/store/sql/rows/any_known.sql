-- Whether this reconciler has records of rows. It stops at the first one it finds, along the cheapest index.
select exists (select from {schema}.rows where reconciler = %(reconciler)s);
