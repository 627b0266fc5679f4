from django.db import migrations

from trueup.django.migrating import ApplySteps


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("trueup", "0001_initial")]
    operations = [ApplySteps("0016_pre_health")]
