from django.db import migrations

from trueup.django.migrating import ApplySteps


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("trueup", "0022_pre_blocked_loops")]
    operations = [ApplySteps("0023_pre_schedule_meta")]
