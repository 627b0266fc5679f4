from django.db import migrations

from trueup.django.migrating import ApplySteps


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("trueup", "0021_pre_one_by_one")]
    operations = [ApplySteps("0022_pre_blocked_loops")]
