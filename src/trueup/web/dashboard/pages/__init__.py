"""What each page shows: functions from a visit to the values of its template."""
