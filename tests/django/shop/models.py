from django.db import models


class Order(models.Model):
    number = models.IntegerField()
    state = models.TextField(default="new")

    class Meta:
        app_label = "shop"
