# SPDX-License-Identifier: Apache-2.0
"""Checks a scrape of a daemon: the two formats by a parser of OpenMetrics, every statistic of
`kvcachectl stats --json` against it, and the metrics that alerting rules name.

metrics.py TEXT OPENMETRICS STATS RULES HELP DASHBOARD

HELP is what `kvcachectl stats --help ''` prints.
"""

import json
import re
import sys

try:
    from prometheus_client.openmetrics import parser as openmetrics
    from prometheus_client import parser as plain_text
except ImportError:
    sys.exit(77)

HISTO = (".mean", ".p50", ".p99", ".p9999", ".max", ".count")
UNITS = (("_ns", "_seconds", 1e9), ("_us", "_seconds", 1e6), ("_ms", "_seconds", 1e3))
ALSO = (("_bytes_per_s", "_bytes_per_second", 1), ("_percent", "_ratio", 100))


def fail(text):
    sys.exit(f"metrics: {text}")


def name_of(stat):
    """The metric of a statistic's name, its labels, and by what the value is divided."""
    prefix, name = stat.split(".", 1)
    labels = {}
    if number := re.fullmatch(r"(\D+)(\d+)", prefix):
        prefix, labels = number[1], {"device": number[2]}
    for old, new, per in UNITS + ALSO:
        if name.endswith(old):
            return f"kvcache_{prefix}_{name.removesuffix(old)}", new, labels, per
    return f"kvcache_{prefix}_{name}", "", labels, 1


def samples_of(families):
    seen, samples = set(), {}
    for family in families:
        if family.name in seen:
            fail(f"{family.name} is there twice")
        seen.add(family.name)
        if not family.documentation or not family.name.startswith("kvcache_"):
            fail(f"{family.name} has no help, or another prefix")
        for s in family.samples:
            key = (s.name, tuple(sorted(s.labels.items())))
            if key in samples:
                fail(f"{key} is there twice")
            samples[key] = s.value
            if family.type == "counter" and not s.name.endswith("_total"):
                fail(f"{s.name} is a counter")
            if s.value < 0:
                fail(f"{s.name} is {s.value}")
    return samples


def check_stat(stat, value, samples):
    part = next((p for p in HISTO if stat.endswith(p)), "")
    name, unit, labels, per = name_of(stat.removesuffix(part))
    at = tuple(sorted(labels.items()))
    if part == ".max":
        want = [f"{name}_max{unit}"]
    elif part:
        want = [f"{name}{unit}_{end}" for end in ("sum", "count")]
    else:
        want = [f"{name}{unit}_total", f"{name}{unit}"]
    there = [w for w in want if (w, at) in samples]
    if len(there) != (2 if part not in ("", ".max") else 1):
        fail(f"{stat}: of {want} there is {there}")
    if stat in STEADY and abs(samples[(there[0], at)] - value / per) > 1e-9:
        fail(f"{stat} is {value}, and {there[0]} {samples[(there[0], at)]}")


# What two requests apart in time say the same of.
STEADY = ("daemon.host_limit_bytes", "nvme.limit_bytes", "nvme.paths_up", "core.namespaces",
          "core.blocks_stored", "core.bytes_stored")


def check_help(told, text, stats):
    """What kvcachectl tells of a statistic is what /metrics tells of it."""
    found = re.findall(r"^(\S+): (.+)\n    type (\w+), unit (\w+)\n    /metrics: (kvcache_\w+)(.*)$", told, re.M)
    for stat, words, kind, unit, metric, more in found:
        if "device" not in stat and stat not in {s.removesuffix(".count") for s in stats}:
            fail(f"--help tells of {stat}, and stats does not have it")
        if f"# HELP {metric} {words}\n# TYPE {metric} {kind}\n" not in text:
            fail(f"--help tells of {stat} what /metrics does not: {words}, {kind}, {metric}")
        bytes_of = "bytes" in re.split(r"[._]", stat)
        if unit == "none" and bytes_of:
            fail(f"{stat} is told to have no unit")
        if unit != "none" and not stat.endswith("_" + unit) and not (unit == "bytes" and bytes_of):
            fail(f"{stat} is told to be in {unit}")
    known = {re.sub(r"^device", "deviceN", re.sub(r"\d+", "", stat, count=1)) if stat.startswith("device") else stat
             for stat in (re.sub(r"\.(count|mean|p50|p99|p9999|max)$", "", s) for s in stats)}
    if known != {f[0] for f in found}:
        fail(f"--help differs in {known ^ {f[0] for f in found}}")


def check_dashboard(dashboard, samples):
    """Every query is of metrics that are there, and every panel has one that is not 0."""
    live = {name for (name, _), value in samples.items() if value > 0}
    there = {name for name, _ in samples}
    panels = [p for p in json.loads(dashboard)["panels"] if p["type"] != "row"]
    for panel in panels:
        title, shows = panel["title"], False
        if not panel["description"] or not panel["targets"]:
            fail(f"dashboard: {title} has no description, or no query")
        for target in panel["targets"]:
            named = set(re.findall(r"kvcache_\w+", target["expr"]))
            if not named or not named <= there:
                fail(f"dashboard: {title}: the daemon has no {named - there}: {target['expr']}")
            if any(target["expr"].count(a) != target["expr"].count(b) for a, b in ("()", "{}", "[]")):
                fail(f"dashboard: {title}: brackets: {target['expr']}")
            shows |= bool(named & live)
        if not shows:
            fail(f"dashboard: {title} has no data")
    for histogram in ("svc_lookup", "svc_acquire", "svc_commit", "daemon_host_copy", "nvme_write", "nvme_read"):
        if f"kvcache_{histogram}_seconds_count" not in live:
            fail(f"{histogram} counts nothing")
    return len(panels)


def check_buckets(samples):
    series = {}
    for (name, labels), value in samples.items():
        if name.endswith("_bucket"):
            rest = tuple(x for x in labels if x[0] != "le")
            series.setdefault((name, rest), []).append((float(dict(labels)["le"]), value))
    if len(series) < 13:
        fail(f"{len(series)} histograms")
    for (name, labels), buckets in series.items():
        counts = [count for _, count in sorted(buckets)]
        if counts != sorted(counts):
            fail(f"{name} falls")
        if counts[-1] != samples[(name.removesuffix("_bucket") + "_count", labels)]:
            fail(f"{name} has another count")


def main():
    text, om, stats, rules, told, dashboard = (open(path, encoding="utf-8").read() for path in sys.argv[1:7])
    samples = samples_of(openmetrics.text_string_to_metric_families(om))
    plain = samples_of(plain_text.text_string_to_metric_families(text))
    if set(plain) != set(samples):
        fail(f"the formats differ in {set(plain) ^ set(samples)}")
    check_buckets(samples)
    stats = {k: v for k, v in json.loads(stats).items() if isinstance(v, int)}
    if len(stats) < 200 or not set(STEADY) <= set(stats):
        fail(f"{len(stats)} statistics: {set(STEADY) - set(stats)} are missing")
    for stat, value in stats.items():
        check_stat(stat, value, samples)
    check_help(told, text, stats)
    # The other way round: each sample is a statistic's.
    known = {"kvcache_build_info"}
    for stat in stats:
        name, unit, _, _ = name_of(stat.removesuffix(next((p for p in HISTO if stat.endswith(p)), "")))
        known |= {name + unit, name + "_max" + unit}
    for name, _ in samples:
        if re.sub(r"_(total|bucket|sum|count)$", "", name) not in known:
            fail(f"{name} is no statistic")
    named = set(re.findall(r"kvcache_\w+", " ".join(re.findall(r"^ +(?:expr|action|cause): (.*)$", rules, re.M))))
    names = {name for name, _ in samples} | {re.sub(r"_(bucket|sum|count)$", "", name) for name, _ in samples}
    if len(named) < 10 or not named <= names:
        fail(f"the rules name {named - names}")
    panels = check_dashboard(dashboard, samples)
    if panels < 15:
        fail(f"{panels} panels")
    print(f"{panels} panels, {len(stats)} statistics, {len(samples)} samples, {len(named)} named by rules")


main()
