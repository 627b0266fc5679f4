from django.db import migrations

from trueup.django.migrating import ApplySteps


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("trueup", "0017_pre_paused_queues")]
    operations = [ApplySteps("0018_pre_alerts")]
