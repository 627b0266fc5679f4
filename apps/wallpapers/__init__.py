"""Image uploads across PostgreSQL, S3 and NATS, and the sweeps that put interrupted ones right."""
