"""The cron jobs of a project-management suite, each under a Redis lock, on trueup."""
