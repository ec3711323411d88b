"""Hours of waiting in words: with a decimal below ten, whole above, and never with an exponent.

Pages, REST and the plan of a job say them; the command has the same rule (`motley_command.tables.format`).
"""

from typing import TypeGuard

LEAST_TOLD_H = 0.05
"""Of less no sentence is made: it would read 0.0 h."""
LEAST_WHOLE_H = 9.5


def format_hours(hours: float) -> str:
    """`0.3 h`, `4.8 h`, `1,384 h`."""
    return f"{hours:,.0f} h" if abs(hours) >= LEAST_WHOLE_H else f"{hours:.1f} h"


def words_of_holding(gpus: int, price: float, *, held: str) -> str:
    """Sentence on what holding GPUs at this price costs others, without its full stop; empty if next to nothing."""
    waits_h = gpus * price
    return f"Others wait {format_hours(waits_h)} for each hour that it holds {held}" if is_told(waits_h) else ""


def is_told(hours: float | None) -> TypeGuard[float]:
    """Whether a sentence is made of what others wait; None: it is not known."""
    return hours is not None and hours >= LEAST_TOLD_H
