from django.db import migrations

from trueup.django.migrating import ApplySteps


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("trueup", "0016_pre_health")]
    operations = [ApplySteps("0017_pre_paused_queues")]
