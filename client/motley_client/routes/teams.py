"""Teams: members, limits, and what they used."""

from collections.abc import Iterator
from datetime import date, datetime
from typing import cast

from motley_client.connection import Connection, url_path, without_empty
from motley_client.responses import Invitation, Member, MonthlyReport, Team, TeamStarts, UsageReport


class TeamRoutes(Connection):
    """Teams: members, limits, and what they used."""

    def teams(self) -> Iterator[Team]:
        """Your teams; for administrators all teams."""
        return cast("Iterator[Team]", self._pages("teams", {}))

    def team(self, name: str) -> Team:
        return cast("Team", self._json("GET", url_path("teams", name)))

    def team_starts(self, name: str) -> TeamStarts:
        """Where the team's starts of seven days went: quantiles of each stage."""
        return cast("TeamStarts", self._json("GET", url_path("teams", name, "starts")))

    def retire_team(self, name: str) -> Team:
        """Retire a team without unfinished jobs: nothing can be submitted for it. Administrators only."""
        return cast("Team", self._json("POST", url_path("teams", name, "retire")))

    def restore_team(self, name: str) -> Team:
        """Let a retired team submit again. Administrators only."""
        return cast("Team", self._json("POST", url_path("teams", name, "restore")))

    def members(self, team: str) -> list[Member]:
        """Members of a team with what each uses, and former members whose jobs are the team's still."""
        return cast("list[Member]", self._json("GET", url_path("teams", team, "members"))["members"])

    def set_member(self, team: str, username: str, *, lead: bool | None = None) -> list[Member]:
        """Add a member, or change the role of one; None: it stays as it is. Leads of the team and administrators only.

        Returns all members.
        """
        answer = self._json("PUT", url_path("teams", team, "members", username), json=without_empty({"lead": lead}))
        return cast("list[Member]", answer["members"])

    def limit_members(self, team: str, *, max_gpus: int | None, idle_minutes: int | None) -> None:
        """Set the limits of each member; None: no limit. Leads of the team and administrators only."""
        limits = {"max_gpus_per_member": max_gpus, "idle_gpus_limit_min": idle_minutes}
        self._send("PUT", url_path("teams", team, "member-limits"), json=limits)

    def invite(self, team: str, username: str, *, email: str = "", lead: bool = False) -> Invitation:
        """Invite a person into a team: only this answer contains the link. Leads and administrators only."""
        body = {"username": username, "email": email, "lead": lead}
        return cast("Invitation", self._json("POST", url_path("teams", team, "invitations"), json=body))

    def remove_member(self, team: str, username: str) -> None:
        """Remove a member, whose jobs go on. Leads of the team and administrators only."""
        self._send("DELETE", url_path("teams", team, "members", username))

    def set_quota(
        self,
        team: str,
        gpu_type: str,
        gpus: int,
        *,
        borrowing_limit: int | None = None,
        lending_limit: int | None = None,
    ) -> Team:
        """Set the quota of a team on a GPU type; None: no limit. Administrators only."""
        limits = {"gpus": gpus, "borrowing_limit": borrowing_limit, "lending_limit": lending_limit}
        return cast("Team", self._json("PUT", url_path("teams", team, "quotas", gpu_type), json=limits))

    def delete_quota(self, team: str, gpu_type: str) -> None:
        self._send("DELETE", url_path("teams", team, "quotas", gpu_type))

    def set_budget(self, team: str, gpu_hours: float, *, period: str = "month", kind: str = "soft") -> Team:
        """Set the budget of a team, in reference GPU-hours per period. Administrators only."""
        budget = {"gpu_hours": gpu_hours, "period": period, "kind": kind}
        return cast("Team", self._json("PUT", url_path("teams", team, "budget"), json=budget))

    def delete_budget(self, team: str) -> None:
        self._send("DELETE", url_path("teams", team, "budget"))

    def usage(
        self, *, since: date | None = None, until: date | None = None, by: str = "month", team: str = ""
    ) -> UsageReport:
        """GPU-hours and cost of your teams per `by` ("day" or "month") and GPU type; default: this month's."""
        query = without_empty({"since": since, "until": until, "by": by, "team": team or None})
        return cast("UsageReport", self._json("GET", "usage", params=query))

    def usage_csv(
        self, *, since: date | None = None, until: date | None = None, by: str = "month", team: str = ""
    ) -> bytes:
        """The same as CSV."""
        query = without_empty({"since": since, "until": until, "by": by, "team": team or None})
        return self._send("GET", "usage.csv", params=query).content

    def report(self, *, month: str | None = None, team: str = "") -> MonthlyReport:
        """What each of your teams had in a month ("2026-11"), by default this one."""
        query = without_empty({"month": month, "team": team or None})
        return cast("MonthlyReport", self._json("GET", "report", params=query))

    def report_csv(self, *, month: str | None = None, team: str = "") -> bytes:
        """The same as CSV."""
        query = without_empty({"month": month, "team": team or None})
        return self._send("GET", "report.csv", params=query).content

    def history(
        self, *, since: datetime | None = None, until: datetime | None = None, anonymise: bool = False
    ) -> bytes:
        """Jobs of your teams that ran, as a trace for the simulator; default: those of the last seven days."""
        query = without_empty({"since": since, "until": until, "anonymise": "true" if anonymise else None})
        return self._send("GET", "history", params=query).content
