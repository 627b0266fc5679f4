from django.db import migrations

from trueup.django.migrating import ApplySteps


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("trueup", "0018_pre_alerts")]
    operations = [ApplySteps("0019_pre_meta")]
