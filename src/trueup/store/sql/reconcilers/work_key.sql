-- The breaker of one key closes: a row of it has worked again. Index: reconciler_pauses_pkey.
delete from {schema}.reconciler_pauses where reconciler = %(name)s and key = %(key)s returning key;
