"""What trueup and applications on it need to serve HTTP safely."""
