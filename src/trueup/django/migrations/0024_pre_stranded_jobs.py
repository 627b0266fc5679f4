from django.db import migrations

from trueup.django.migrating import ApplySteps


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("trueup", "0023_pre_schedule_meta")]
    operations = [ApplySteps("0024_pre_stranded_jobs")]
