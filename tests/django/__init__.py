from tests.support import django_project as django_project  # sets Django up before anything here is imported
