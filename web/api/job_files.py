"""REST: files of a job's own folder, listed and downloaded; no link is followed."""

from typing import Any

from django.http import StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.exceptions import APIException, NotFound
from rest_framework.generics import GenericAPIView
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from connections_app.job_folder import a_place, download, list_folder, open_for
from engines.job_files import MOST_LISTED
from engines.protocol import EngineError, JobFile, NoSuchFile
from jobs_app.errors import FilesDeleted
from jobs_app.models import Job
from jobs_app.permissions import caller
from web.api.logs import RANGE, job_asked
from web.rest.query import query_of

LONGEST_PATH = 4096
DELETED = OpenApiResponse(description="The job ended so long ago that its files were deleted.")


class FilesOutOfReach(APIException):
    """409: the service cannot read the folder of the job."""

    status_code = 409
    default_code = "files_out_of_reach"


class AnyBytes(JSONRenderer):
    """Makes the type negotiable; errors are still rendered as JSON."""

    media_type = "application/octet-stream"


class FolderQuery(serializers.Serializer[Any]):
    path = serializers.CharField(
        required=False,
        max_length=LONGEST_PATH,
        trim_whitespace=False,
        help_text="Folder, e.g. `work/out`. Default: the job's folders.",
    )


class FileQuery(serializers.Serializer[Any]):
    path = serializers.CharField(
        max_length=LONGEST_PATH, trim_whitespace=False, help_text="File, e.g. `work/out/model.pt`."
    )


class JobFileSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    kind = serializers.SerializerMethodField(
        help_text="`folder`, `file`, or `other`: a link or a device, which is not followed."
    )
    size = serializers.IntegerField(help_text="In bytes.")
    modified_at = serializers.DateTimeField()

    def get_kind(self, file: JobFile) -> str:
        return "folder" if file.is_folder else "file" if file.is_file else "other"


class FolderSerializer(serializers.Serializer[Any]):
    path = serializers.CharField()
    files = JobFileSerializer(many=True)
    complete = serializers.BooleanField(help_text=f"False: the folder has more names than the first {MOST_LISTED:,}.")


class FolderView(GenericAPIView[Job]):
    queryset = Job.objects.none()
    serializer_class = FolderSerializer

    @extend_schema(
        parameters=[FolderQuery], responses={200: FolderSerializer, 410: DELETED}, summary="List files of a job"
    )
    def get(self, request: Request, pk: str) -> Response:
        """Content of a folder of the job: of its working folder `work` and of its `checkpoints`; folders come first."""
        job = job_with_files(request, pk)
        path = query_of(request, FolderQuery).get("path", "").strip("/")
        try:
            with a_place(job, caller(request).pk):
                files = list_folder(job, path)
        except EngineError as error:
            raise refusal(error) from error
        content = {"path": path, "files": files, "complete": len(files) < MOST_LISTED}
        return Response(FolderSerializer(content).data)


class FileView(GenericAPIView[Job]):
    queryset = Job.objects.none()
    serializer_class = FileQuery
    renderer_classes = (AnyBytes, JSONRenderer)

    @extend_schema(
        parameters=[FileQuery, RANGE],
        responses={
            (200, "application/octet-stream"): OpenApiTypes.BINARY,
            (206, "application/octet-stream"): OpenApiTypes.BINARY,
            410: DELETED,
        },
        summary="Download a file of a job",
    )
    def get(self, request: Request, pk: str) -> StreamingHttpResponse:
        """Bytes of one regular file of the job's folders, as many as it had at the start of the download."""
        job = job_with_files(request, pk)
        path = query_of(request, FileQuery)["path"]
        try:
            opened, give_back = open_for(job, path, caller(request).pk)
        except EngineError as error:
            raise refusal(error) from error
        asked = request.headers.get("Range", "")
        answer = download(opened, path.rpartition("/")[2], asked, when_closed=give_back)
        answer["Accept-Ranges"] = "bytes"
        return answer


def job_with_files(request: Request, pk: str) -> Job:
    """The job if the caller may see it; raises `FilesDeleted`."""
    job = job_asked(request, pk)
    if job.files_deleted_at is not None:
        raise FilesDeleted(job.files_deleted_at)
    return job


def refusal(error: EngineError) -> APIException:
    """404 where there is no such file, 409 where the service cannot read the folder."""
    return NotFound(str(error)) if isinstance(error, NoSuchFile) else FilesOutOfReach(str(error))
