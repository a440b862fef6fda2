"""Prints what AIPerf measured of the demo, one line a run: summary.py FOLDER BASELINE RUN

It fails if a request failed, or if the run found no more in the caches than the baseline. Times depend on the machine.
"""

import json
import pathlib
import sys

folder, *runs = sys.argv[1:]
print(
    f"{'policy':12} {'requests':>8} {'errors':>6} {'cached':>7} {'TTFT mean':>10} {'p50':>8} {'p99':>8}"
    f" {'latency mean':>13} {'requests/s':>10}"
)
problems, hits = [], []
for run in runs:
    report = json.loads((pathlib.Path(folder) / run / "profile_export_aiperf.json").read_text())
    ttft, latency = report["time_to_first_token"], report["request_latency"]
    hits.append(report["overall_usage_prompt_cache_read_pct"]["avg"])
    errors = int((report.get("error_request_count") or {"avg": 0})["avg"])
    if errors:
        problems.append(f"{errors} requests of {run} failed")
    print(
        f"{run:12} {report['request_count']['avg']:8.0f} {errors:6} {hits[-1]:6.1f}% {ttft['avg']:7.0f} ms {ttft['p50']:5.0f} ms"
        f" {ttft['p99']:5.0f} ms {latency['avg']:10.0f} ms {report['request_throughput']['avg']:10.1f}"
    )
if hits[1] <= hits[0]:
    problems.append(f"{runs[1]} found no more in the caches than {runs[0]}")
sys.exit("; ".join(problems) or 0)
