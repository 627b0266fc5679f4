from django.db import migrations

from trueup.django.migrating import ApplySteps


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("trueup", "0024_pre_stranded_jobs")]
    operations = [ApplySteps("0025_pre_first_guess")]
