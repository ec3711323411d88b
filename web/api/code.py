"""REST: archives of code of a team (`/teams/{name}/code`)."""

from io import BytesIO

from django.db.models import QuerySet
from django.http import FileResponse, HttpResponseBase
from django.shortcuts import get_object_or_404
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import serializers, status, viewsets
from rest_framework.decorators import action
from rest_framework.exceptions import NotFound
from rest_framework.request import Request

from jobs_app.code.storage import path_of, store
from jobs_app.models import CodeArchive, Team
from jobs_app.models.code_archive import DIGEST
from jobs_app.permissions import NotForJobs, caller
from web.rest.pagination import NewestFirst
from web.rest.parsers import Gzip
from web.rest.representation import ShowMany, ShowOne, single


class CodeAnswer(serializers.ModelSerializer[CodeArchive]):
    uploaded_by = serializers.CharField(source="uploaded_by.username", default=None, allow_null=True, read_only=True)

    class Meta:
        model = CodeArchive
        fields: tuple[str, ...] = (
            "digest",
            "size_bytes",
            "unpacked_bytes",
            "files",
            "commit",
            "branch",
            "stored",
            "uploaded_by",
            "created_at",
            "used_at",
        )
        read_only_fields: tuple[str, ...] = fields


class CodeInFull(CodeAnswer):
    class Meta(CodeAnswer.Meta):
        fields = (*CodeAnswer.Meta.fields, "diff")
        read_only_fields = fields


@extend_schema_view(
    list=extend_schema(summary="List archives of code"), retrieve=extend_schema(summary="Get an archive's description")
)
class CodeViewSet(ShowMany[CodeArchive], ShowOne[CodeArchive], viewsets.GenericViewSet[CodeArchive]):
    """Archives of a team's code, newest first. A row whose file was deleted by retention has `stored` false."""

    queryset = CodeArchive.objects.none()
    permission_classes = (NotForJobs,)
    pagination_class = NewestFirst
    lookup_field = "digest"
    lookup_value_regex = DIGEST

    def get_queryset(self) -> QuerySet[CodeArchive]:
        return self._team().code_archives.select_related("uploaded_by", "team")

    def get_serializer_class(self) -> type[CodeAnswer]:
        return CodeAnswer if self.action == "list" else CodeInFull

    @extend_schema(
        summary="Upload code",
        request={Gzip.media_type: OpenApiTypes.BINARY},
        responses={200: CodeInFull, 201: CodeInFull},
    )
    def update(self, request: Request, team: str, digest: str) -> HttpResponseBase:
        """Upload code: a gzipped tar archive whose SHA-256 is the digest, of at most 512 MiB (unpacked as well).

        Uploading it again changes nothing (200). A member `.motley/source.json` may say the `commit`, `branch` and
        `diff` that it was packed from.
        """
        mine = self._team()
        is_new = not mine.code_archives.stored().filter(digest=digest).exists()
        stored = store(request.stream or BytesIO(), digest, team=mine, user=caller(request))
        return single(request, CodeInFull(stored).data, status.HTTP_201_CREATED if is_new else status.HTTP_200_OK)

    @extend_schema(responses={(200, Gzip.media_type): OpenApiTypes.BINARY})
    @action(detail=True, methods=["get"])
    def archive(self, request: Request, team: str, digest: str) -> HttpResponseBase:
        """Download code."""
        found: CodeArchive = self.get_object()
        try:
            file = path_of(found).open("rb")
        except FileNotFoundError:
            raise NotFound("The archive is no longer stored: no job has used it lately.") from None
        return FileResponse(file, as_attachment=True, filename=f"{digest[:12]}.tar.gz", content_type=Gzip.media_type)

    def _team(self) -> Team:
        return get_object_or_404(Team.objects.visible_to(caller(self.request)), name=self.kwargs["team"])
