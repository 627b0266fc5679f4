-- Releases a freshly taken unique window: the key's live job was stored without it.
delete from {schema}.unique_windows where kind = %(kind)s and unique_key = %(unique_key)s;
