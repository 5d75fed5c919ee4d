"""Calendar windows, in UTC: which one a moment lies in, and when that one ends. Pure; no clock."""

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final, Literal, get_args

Window = Literal["hour", "day", "week", "month"]
"""How long a budget counts before it starts anew; weeks start on Monday."""
WINDOWS: Final[tuple[Window, ...]] = get_args(Window)


def window_name(window: Window, time: str) -> str:
    """The window that a ledger timestamp lies in: 2026-11-30T14, 2026-11-30, 2026-W49 or 2026-11.

    Names of later windows sort after those of earlier ones.
    """
    if window == "hour":
        return time[:13]
    if window == "day":
        return time[:10]
    if window == "month":
        return time[:7]
    return _week(time[:10])


@lru_cache(maxsize=64)
def _week(day: str) -> str:
    year, week, _ = datetime.fromisoformat(day).isocalendar()
    return f"{year:04}-W{week:02}"


def window_end(window: Window, time: str) -> datetime:
    """When the window that a ledger timestamp lies in is over, and the next one starts."""
    moment = datetime.fromisoformat(time).astimezone(UTC)
    hour = moment.replace(minute=0, second=0, microsecond=0)
    day = hour.replace(hour=0)
    if window == "hour":
        return hour + timedelta(hours=1)
    if window == "day":
        return day + timedelta(days=1)
    if window == "week":
        return day + timedelta(days=7 - day.weekday())
    return (day.replace(day=1) + timedelta(days=31)).replace(day=1)


def seconds_until(end: datetime, now: str) -> int:
    """Whole seconds from a timestamp to `end`, rounded up, at least 1."""
    left = (end - datetime.fromisoformat(now)).total_seconds()
    return max(1, int(left) + (left > int(left)))
