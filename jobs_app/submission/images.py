"""Images of containers: how a job may name them, and which of them may be fetched."""

import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

from django.conf import settings
from rest_framework import serializers

from web.rest.errors import Fault

PART = r"[a-z0-9]+(?:[._-]+[a-z0-9]+)*"
NAME = re.compile(
    rf"(?P<registry>(?:[a-zA-Z0-9-]+\.)+[a-zA-Z0-9-]+(?::[0-9]+)?|localhost(?::[0-9]+)?)/{PART}(?:/{PART})*"
    r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?:@sha256:[0-9a-f]{64})?"
)
ARCHIVE = re.compile(r"(?:oci-archive|docker-archive|dir|sif):(?P<path>(?:/[A-Za-z0-9_+=@.-]+)+)")
LONGEST = 500


class Image(serializers.CharField):
    """Image: `registry.example.org/team/name:tag`, `localhost/name:tag`, or an archive, `oci-archive:/path`."""

    def __init__(self) -> None:
        super().__init__(max_length=LONGEST, required=False, allow_blank=True, help_text=self.__doc__)

    def to_internal_value(self, data: Any) -> str:
        image = str(super().to_internal_value(data))
        archive = ARCHIVE.fullmatch(image)
        if image and not NAME.fullmatch(image) and (archive is None or ".." in archive["path"].split("/")):
            raise serializers.ValidationError(
                "Write the whole name of an image, as localhost/torch:2.5 or registry.example.org/torch:2.5, or an "
                "archive, as oci-archive:/images/torch.tar."
            )
        return image


def image_faults(image: str) -> Iterator[Fault]:
    """Fault if the image is an archive outside of the folders that the site allows."""
    if ARCHIVE.fullmatch(image) and not may_fetch(image):
        folders = ", ".join(settings.MOTLEY_IMAGE_FOLDERS) or "none: an administrator sets MOTLEY_IMAGE_FOLDERS"
        yield Fault(
            pointer="/image", code="image_not_allowed", detail=f"Archives may lie below these folders: {folders}."
        )


def may_fetch(image: str) -> bool:
    """Whether it may be read from its archive, or pulled from its registry."""
    if archive := ARCHIVE.fullmatch(image):
        return any(PurePosixPath(archive["path"]).is_relative_to(folder) for folder in settings.MOTLEY_IMAGE_FOLDERS)
    name = NAME.fullmatch(image)
    return name is not None and name["registry"] in settings.MOTLEY_IMAGE_REGISTRIES
