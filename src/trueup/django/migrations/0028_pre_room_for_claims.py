from django.db import migrations

from trueup.django.migrating import ApplySteps


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("trueup", "0027_pre_refused_jobs")]
    operations = [ApplySteps("0028_pre_room_for_claims")]
