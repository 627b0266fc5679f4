from django.db import migrations

from trueup.django.migrating import ApplySteps


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("trueup", "0026_pre_first_guess")]
    operations = [ApplySteps("0027_pre_refused_jobs")]
