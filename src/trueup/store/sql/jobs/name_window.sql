-- Records which job a freshly taken unique window belongs to.
update {schema}.unique_windows set job_id = %(job_id)s where kind = %(kind)s and unique_key = %(unique_key)s returning job_id;
