"""REST: checkpoints of a job, and the jobs that began with one of them."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from connections_app.checkpoints.listing import read_checkpoints
from engines.protocol import EngineError
from jobs_app.models import Job
from jobs_app.permissions import jobs_seen_by
from web.api.job_files import DELETED, job_with_files, refusal

MOST_BEGUN = 100


class SavedCheckpoint(serializers.Serializer[Any]):
    name = serializers.CharField(
        allow_blank=True, help_text="Of the file or folder; empty: it is not kept, or an archive of all."
    )
    kept = serializers.BooleanField(help_text="False: the job reported it, and has replaced or deleted it since.")
    step = serializers.IntegerField(allow_null=True, help_text="By its name, else the last that was reported before.")
    made_at = serializers.DateTimeField()
    size = serializers.IntegerField(
        allow_null=True, help_text="In bytes; null: not kept, or too many files to be measured."
    )
    took_s = serializers.FloatField(allow_null=True, help_text="Null, as attempt and loss: the job did not report it.")
    attempt = serializers.IntegerField(allow_null=True, help_text="Number of the attempt that made it.")
    loss = serializers.FloatField(allow_null=True)


class ContinuedBy(serializers.ModelSerializer[Job]):
    """A job that began with a checkpoint of this one."""

    class Meta:
        model = Job
        fields = ("id", "name", "continues_from", "continues_step")
        read_only_fields = fields


class SavedCheckpoints(serializers.Serializer[Any]):
    checkpoints = SavedCheckpoint(many=True, help_text="The newest first.")
    continued_by = ContinuedBy(many=True, help_text=f"The newest {MOST_BEGUN} that the caller may see.")


class CheckpointsOfJobView(GenericAPIView[Job]):
    queryset = Job.objects.none()
    serializer_class = SavedCheckpoints

    @extend_schema(responses={200: SavedCheckpoints, 410: DELETED}, summary="List the checkpoints of a job")
    def get(self, request: Request, pk: str) -> Response:
        """Checkpoints that are there, and those that the job reported. `clone?checkpoint=` begins a job with one."""
        job = job_with_files(request, pk)
        try:
            found = read_checkpoints(job)
        except EngineError as error:
            raise refusal(error) from error
        begun = jobs_seen_by(request).filter(continues=job.pk)[:MOST_BEGUN]
        rows = [one._asdict() for one in found]
        return Response(SavedCheckpoints({"checkpoints": rows, "continued_by": begun}).data)
