-- How late the rows were that delete.sql or move.sql has just picked in this transaction: as rows/_tell.sql has recorded it.
select current_setting('trueup_rows.told');
