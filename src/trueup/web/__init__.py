"""Parts for serving HTTP safely, for trueup and for applications on it."""
