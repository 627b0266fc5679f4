-- enqueue: nothing -> queued, for bulk: streamed, in bounded memory. Values are computed from the transaction's own now().
copy {schema}.jobs (kind, queue, lane, priority, max_attempts, run_at, rank, enqueued_at, meta, key, args) from stdin;
