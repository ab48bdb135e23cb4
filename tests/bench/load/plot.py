"""Draws what `make soak` measured: plot.py FILE.csv FILE.png"""

import csv
import sys

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot

PANELS = [
    ("jobs each second", ["jobs_per_s"], False),
    ("latency from the intended start, ms", ["p50_ms", "p99_ms", "max_ms"], True),
    ("memory, MiB", ["rss_mib"], False),
    ("disk, MiB", ["journal_mib", "database_mib"], False),
    ("open files and threads", ["open_files", "threads"], False),
    ("waiting jobs", ["waiting_jobs"], False),
]


def main(source, target):
    with open(source, newline="") as file:
        rows = [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]
    minutes = [row["seconds"] / 60 for row in rows]
    figure, panels = pyplot.subplots(3, 2, figsize=(12, 9), sharex=True, layout="constrained")
    for panel, (title, columns, is_logarithmic) in zip(panels.flat, PANELS):
        for column in columns:
            panel.plot(minutes, [row[column] for row in rows], label=column)
        panel.set_title(title)
        panel.grid(alpha=0.3)
        if is_logarithmic:
            panel.set_yscale("log")
        else:
            panel.set_ylim(bottom=0)
        if len(columns) > 1:
            panel.legend()
    for panel in panels[-1]:
        panel.set_xlabel("minutes")
    figure.savefig(target, dpi=100, metadata={"Software": None})


main(*sys.argv[1:])
