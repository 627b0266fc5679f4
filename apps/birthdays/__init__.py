"""Birthday messages at nine o'clock where each user lives, which survive a day of downtime."""
