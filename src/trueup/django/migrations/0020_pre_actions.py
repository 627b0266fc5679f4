from django.db import migrations

from trueup.django.migrating import ApplySteps


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("trueup", "0019_pre_meta")]
    operations = [ApplySteps("0020_pre_actions")]
