-- For claim='row_lock' and a handler without tx: as change_locked.sql, but no transaction can have changed the row since it was locked,
-- so nothing is compared. Index: the user's key.
update {table} as t set {assignments} where {t_is_p}{kept};
