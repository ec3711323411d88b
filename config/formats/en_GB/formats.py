"""Times to the second and with their zone, as in logs and on the pages; Django's own say 4:05 p.m."""

DATETIME_FORMAT = "j M Y, H:i:s e"
TIME_FORMAT = "H:i:s"
