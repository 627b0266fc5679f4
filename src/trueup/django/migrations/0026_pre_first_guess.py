from django.db import migrations

from trueup.django.migrating import ApplySteps


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("trueup", "0025_pre_texts_of_checks")]
    operations = [ApplySteps("0026_pre_first_guess")]
