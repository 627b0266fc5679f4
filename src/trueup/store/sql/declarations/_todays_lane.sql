case when lane <> queue and not exists (select from living where lane = any(lanes)) and exists (select from living where kind = any(kinds))
     then queue else lane end
