-- Which transaction this is. Raises when it has failed; another number means that the first one has ended.
select pg_current_xact_id()::text;
