"""Verbs of other schedulers for the same commands, and what a misspelt verb may have meant."""

from difflib import get_close_matches
from typing import Any

from typer.core import TyperGroup

ALIASES = {
    **dict.fromkeys(("ls", "list", "jobs", "queue"), ("ps",)),
    **dict.fromkeys(("kill", "delete", "stop", "rm", "remove"), ("cancel",)),
    "run": ("submit",),
    **dict.fromkeys(("status", "describe", "get"), ("show",)),
    "top": ("ps", "--watch"),
}
"""Words in place of the first one; the first of them is a command."""
HARMLESS = {
    *(
        "ps",
        "show",
        "explain",
        "events",
        "attempts",
        "logs",
        "files",
        "wait",
        "plan",
        "convert",
        "replica-size",
        "history",
        "comment",
        "simulate",
    ),
    *("nodes", "types", "storage", "rates", "share", "usage", "rounds", "login", "me", "version", "lab"),
    *(
        "submit",
        "sbatch",
        "policy",
        "token",
        "secret",
        "window",
        "recurring",
        "sweep",
        "recipe",
        "team",
        "members",
        "notifications",
        "sent",
        "list",
    ),
}
"""Verbs that may be suggested: tried at once, they stop no job and lose no work."""


class Verbs(TyperGroup):
    """Command group with aliases, which suggests only verbs that do no harm."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        self.suggest_commands = False  # typer's suggestion may be a verb that does harm
        words = args if args[0] in self.commands else [*ALIASES.get(args[0], (args[0],)), *args[1:]]
        if words[0] not in self.commands and (meant := self._meant(words[0])):
            ctx.fail(f"No such command {words[0]!r}. Did you mean {meant!r}?")
        return super().resolve_command(ctx, words)

    def _meant(self, typed: str) -> str | None:
        nearest = next(iter(get_close_matches(typed, self.commands, n=1)), None)
        return nearest if nearest in HARMLESS else None


def aliases_in_words() -> str:
    """`Other names: ls, list = ps; kill = cancel; ...`, for the help."""
    meant: dict[str, list[str]] = {}
    for alias, words in ALIASES.items():
        meant.setdefault(" ".join(words), []).append(alias)
    pairs = [f"{', '.join(names)} = {words}" for words, names in meant.items()]
    return f"Other names: {'; '.join(pairs)}."
