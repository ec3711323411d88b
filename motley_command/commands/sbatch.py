"""The command `motley sbatch`: options as sbatch takes them, before the script, and the script's arguments after it."""

from collections import deque
from typing import Any

import typer
from typer.core import TyperCommand

from motley_client.spec import SpecError
from motley_command.batch_script import options_of_words
from motley_command.commands.job_options import Specs, takes_specs
from motley_command.commands.submit import WaitOption, submit_specs
from motley_command.sbatch_options import OF_SHORT, Value, option_named
from motley_command.terminal import Output, OutputOption

WHERE = "motley sbatch"
OURS_FIRST = {"wait", "help", "wrap", "parsable"}
"""Options that are not translated: these say how the job is submitted."""


class SlurmCommand(TyperCommand):
    """Command line of sbatch: options of Slurm, others of `motley submit`, the script and its arguments."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        left = deque(args)
        slurm: list[str] = []
        ours: list[str] = []
        while left and left[0].startswith("-") and left[0] != "-":
            word = left.popleft()
            words = [word, *([left.popleft()] if left and self._takes_next(word) else [])]
            (slurm if self._is_slurms(word) else ours).extend(words)
        given = {option.name: value for option, value in options_of_words(slurm, WHERE)}
        ctx.meta["sbatch"] = {name: value for name, value in given.items() if name not in OURS_FIRST}
        ctx.meta["wrap"] = given.get("wrap", "")
        ours += [f"--{name}" for name in ("wait", "help") if name in given]
        ours += ["--output", "name"] if "parsable" in given else []
        script = [] if ctx.meta["wrap"] else [left.popleft() if left else "-"]
        if ctx.meta["wrap"] and left:
            raise SpecError(f"--wrap has no script beside it: {left[0]}")
        ctx.meta["command"] = list(left)
        return super().parse_args(ctx, [*ours, *script])

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return ["[OPTIONS OF SBATCH OR SUBMIT]", "SCRIPT", "[ARGUMENTS]..."]

    def _is_slurms(self, word: str) -> bool:
        if not word.startswith("--"):
            return word[1:2] in OF_SHORT
        return option_named(word[2:].partition("=")[0]) is not None

    def _takes_next(self, word: str) -> bool:
        """Whether the option's value is the next word."""
        if self._is_slurms(word):
            return _needs_value(word)
        known = (parameter for parameter in self.params if word in parameter.opts)
        return any(not getattr(parameter, "is_flag", True) for parameter in known)


def _needs_value(word: str) -> bool:
    """Whether the last option of `--name` or `-vN` has its value in the next word."""
    if word.startswith("--"):
        option = option_named(word[2:])
        return option is not None and option.value is Value.REQUIRED
    options = [OF_SHORT.get(letter) for letter in word[1:]]
    ends = [place for place, option in enumerate(options) if option is None or option.value is not Value.NONE]
    last = options[-1]
    return ends == [len(options) - 1] and last is not None and last.value is Value.REQUIRED


@takes_specs
def sbatch(
    context: typer.Context, *, specs: Specs, wait: WaitOption = False, output: OutputOption = Output.TABLE
) -> None:
    """Submit a batch script as sbatch does, with its options. Examples:

    motley sbatch -N 2 --gpus-per-node=4 -t 2:00:00 train.sh --lr 0.1

    motley sbatch --gres=gpu:a100:1 --wrap "python train.py"

    Options of motley submit, such as --team or --code, may stand among them.
    """
    submit_specs(context, specs, wait=wait, output=output)
