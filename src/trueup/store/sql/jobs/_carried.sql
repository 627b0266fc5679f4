id, kind, queue, lane, key, priority, run_at, args, unique_key, attempt, max_attempts, crashes, term, holder, enqueued_at, claimed_at, progress, schedule, due_at, meta
