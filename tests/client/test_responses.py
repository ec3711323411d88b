"""Types of the client's answers have the fields of REST's schema, neither fewer nor others."""

from pathlib import Path
from typing import Any, get_type_hints, is_typeddict

import pytest
import yaml

from motley_client import responses

SCHEMAS: dict[str, Any] = yaml.load(Path("docs/openapi.yaml").read_text(), yaml.CSafeLoader)["components"]["schemas"]
TYPES = {name: of for name, of in vars(responses).items() if is_typeddict(of)}
OTHER_NAMES = {
    "AppliedPolicy": "AppliedAnswer",
    "ChosenPolicy": "SettingAnswer",
    "CodeArchive": "CodeAnswer",
    "CodeArchiveDetail": "CodeInFull",
    "DeadlineOutlook": "DeadlineAnswer",
    "Decision": "DecisionOnJob",
    "DurationJudgement": "JudgementAnswer",
    "DurationModel": "ModelAnswer",
    "ErrorFigures": "FiguresAnswer",
    "ExpectedRun": "ExpectedAnswer",
    "GpuPoint": "PointAnswer",
    "Job": "ListedJob",
    "JobDetail": "JobInFull",
    "JobEnergy": "EnergyOfJob",
    "JobFolder": "Folder",
    "LabPolicyPreview": "RunPreviewAnswer",
    "ModelComparison": "ComparisonAnswer",
    "MonthlyReport": "ReportAnswer",
    "NewNotificationTarget": "NewTargetAnswer",
    "NewServer": "NewAgent",
    "NodesForecast": "ForecastAnswer",
    "NotificationTarget": "TargetAnswer",
    "PlacementOdds": "PlacementAnswer",
    "Plan": "PlanWithForecast",
    "PolicyEffect": "EffectAnswer",
    "PolicyGuard": "GuardAnswer",
    "PolicyPreview": "PreviewAnswer",
    "QueueOutlook": "OutlookAnswer",
    "Receipt": "ReceiptWithAdvice",
    "RecipeDetail": "RecipeInFull",
    "RoundDetail": "RoundInFull",
    "Server": "AgentAnswer",
    "SweepDetail": "SweepInFull",
    "TeamStarts": "StartsAnswer",
    "TimelineRun": "RunAnswer",
    "Usage": "UsageRow",
    "UsageReport": "UsageAnswer",
}
OF_SOME_ROUTES = {"JobDetail": {"forecast"}, "LabRun": {"result"}}
"""Fields that lists have and single answers have not, or the other way round."""


def component_of(name: str) -> dict[str, Any] | None:
    names = (OTHER_NAMES.get(name), f"{name}Answer", name)
    return next((SCHEMAS[one] for one in names if one in SCHEMAS), None)


@pytest.mark.parametrize("name", [name for name in TYPES if component_of(name)])
def test_a_type_has_the_fields_of_the_schema(name: str) -> None:
    component = component_of(name)
    assert component is not None
    assert set(get_type_hints(TYPES[name])) - OF_SOME_ROUTES.get(name, set()) == set(component["properties"])


def test_most_types_are_compared() -> None:
    assert len([name for name in TYPES if component_of(name)]) > 0.9 * len(TYPES)
    assert set(OTHER_NAMES.values()) <= set(SCHEMAS)
