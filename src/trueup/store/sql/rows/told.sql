-- How late the rows were that delete.sql or move.sql, just before it in this transaction, has picked: as rows/_tell.sql has noted it.
select current_setting('trueup_rows.told');
