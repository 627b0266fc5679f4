-- A hexadecimal address is the same in capitals, where it carries a checksum, and so is a token: one payment must not settle two
-- requests. Our own API writes small letters; not everybody who inserts a row does.
create unique index payment_requests_spelling on app.payment_requests (
  chain_id,
  (case when address ilike '0x%' then lower(address) else address end),
  (case when token ilike '0x%' then lower(token) else token end)
) nulls not distinct;
