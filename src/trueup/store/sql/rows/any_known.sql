-- Whether anything is known about rows of this reconciler. It stops at the first one it finds, along whichever index promises that.
select exists (select from {schema}.rows where reconciler = %(reconciler)s);
