"""Keeps the driver from loading pandas, which no statement of ours needs.

At its first insert the driver asks whether the rows are a data frame, and loads pandas to find out: two seconds of a
start, and two first inserts at once fail over it. It does well without where pandas is not installed; here it is,
because the engine's package brings it.
"""

from typing import Final

from clickhouse_connect.driver import options

# What the driver itself sets to None where pandas is not there.
_PANDAS: Final = ("pd", "pd_time_test")


def leave_dataframes_out() -> None:
    """Tells the driver, for the whole process, that there is no pandas; call it before the first insert.

    numpy is asked about in the same way and costs little: it is loaded now, and not by two first inserts at once.
    """
    for name in _PANDAS:
        setattr(options, name, None)
    _ = options.np
