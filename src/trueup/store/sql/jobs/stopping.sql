-- Which of this worker's jobs have a pending cancellation. Index: jobs_stopping.
select id, term from {schema}.jobs where holder = %(holder)s and cancel_requested_at is not null and state = 'running';
