"""The pages: functions from a visit to the values of a template."""
