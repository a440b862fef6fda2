"""Prints what AIPerf measured, one line a run, and fails if a request failed: summary.py FOLDER RUN..."""

import json
import pathlib
import sys

folder, *runs = sys.argv[1:]
print(f"{'policy':12} {'requests':>8} {'errors':>7} {'TTFT mean':>10} {'p50':>9} {'p99':>9} {'latency mean':>13} {'requests/s':>11}")
failed = False
for run in runs:
    report = json.loads((pathlib.Path(folder) / run / "profile_export_aiperf.json").read_text())
    ttft, latency = report["time_to_first_token"], report["request_latency"]
    count = int(report["request_count"]["avg"])
    errors = int((report.get("error_request_count") or {"avg": 0})["avg"])
    failed = failed or errors > 0 or count == 0
    print(
        f"{run:12} {count:8} {errors:7} {ttft['avg']:7.0f} ms {ttft['p50']:6.0f} ms {ttft['p99']:6.0f} ms"
        f" {latency['avg']:10.0f} ms {report['request_throughput']['avg']:11.1f}"
    )
sys.exit(failed)
