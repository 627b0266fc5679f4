from django.db import migrations

from trueup.django.migrating import ApplySteps


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("trueup", "0020_pre_actions")]
    operations = [ApplySteps("0021_pre_one_by_one")]
