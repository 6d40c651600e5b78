"""`MERGES`: how the answers of several nodes to one verb become one answer.

The first part is that of the node that was asked. What belongs to one server and cannot be added up, such as its
process id, is that node's. A row says its `node` where a reader needs that to find the thing again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from switchgear.net.operations.overview import drain_seconds
from switchgear.net.operations.worker_control import MOST_NAMED

__all__ = ["MERGES", "NodePart"]


class NodePart(NamedTuple):
    """The name of a node, and its answer to a verb."""

    node: str
    value: Any


Parts = Sequence[NodePart]
Arguments = Mapping[str, Any]


def marked(part: NodePart, rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows that say which node they come from."""
    return [{**row, "node": part.node} for row in rows]


def all_marked(parts: Parts, name: str) -> list[dict[str, Any]]:
    """The rows of this field of all parts."""
    return [row for part in parts for row in marked(part, part.value[name])]


def added(figures: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The sums of figures by name; a sum of nothing but nulls is null."""
    sums: dict[str, Any] = {}
    for each in figures:
        for name, value in each.items():
            before = sums.get(name)
            sums[name] = before if value is None else value if before is None else before + value
    return sums


def name_key(name: Any) -> str:
    """The key by which a name is sorted and found, whether it is a text or bytes in base64."""
    return name if isinstance(name, str) else str(name)


# --- lists ---


def merge_functions(parts: Parts, arguments: Arguments) -> Any:
    """The rows of the owners, with the workers of all nodes; see `ClusterOperations` about rows of others."""
    found = {name_key(row["name"]): row for part in parts for row in marked(part, part.value) if "total" in row}
    for part in parts:
        for row in part.value:
            known = found.get(name_key(row["name"]))
            if known is not None and "total" not in row:
                known["workers"] += row["workers"]
    return [found[name] for name in sorted(found)]


def merge_rows(parts: Parts, arguments: Arguments) -> Any:
    return [row for part in parts for row in marked(part, part.value)]


def merge_schedules(parts: Parts, arguments: Arguments) -> Any:
    return sorted(merge_rows(parts, arguments), key=lambda row: name_key(row["name"]))


def merge_jobs(parts: Parts, arguments: Arguments) -> Any:
    """One page. Each part is complete down to an id, and so all are down to the highest of these."""
    found: dict[int, Any] = {}
    for part in parts:
        for job in part.value["jobs"]:
            if job["id"] not in found or job["finished_at"] is None:  # the owner knows best what is unfinished
                found[job["id"]] = job
    complete_from = max([part.value["next_before_id"] or 0 for part in parts])
    jobs = sorted((job for job in found.values() if job["id"] >= complete_from), key=lambda job: -job["id"])
    limit = arguments["limit"]
    if len(jobs) > limit:
        jobs = jobs[:limit]
        complete_from = jobs[-1]["id"]
    return {"jobs": jobs, "next_before_id": complete_from or None}


def merge_connections(parts: Parts, arguments: Arguments) -> Any:
    rows = sorted(all_marked(parts, "connections"), key=lambda row: -row["held"])
    return {"connections": rows[: arguments["limit"]], "count": sum(part.value["count"] for part in parts)}


# --- figures ---


def merge_server(parts: Parts, arguments: Arguments) -> Any:
    values = [part.value for part in parts]
    sums = added({name: value[name] for name in ("jobs", "functions", "workers", "connections")} for value in values)
    return {
        **values[0],
        **sums,
        "memory": merged_memory([value["memory"] for value in values]),
        "listeners": all_marked(parts, "listeners"),
        "events": added(value["events"] for value in values),
        "nodes": [part.node for part in parts],
    }


def merged_memory(figures: Sequence[Mapping[str, int]]) -> dict[str, Any]:
    """What all nodes hold, and may hold together; there is no limit if one of them has none."""
    sums = added(figures)
    if not all(each["limit"] for each in figures):
        sums["limit"] = 0
    return sums


def merge_overview(parts: Parts, arguments: Arguments) -> Any:
    values = [part.value for part in parts]
    jobs = added(value["jobs"] for value in values)
    rates: Any = {**added(value["rates"] for value in values), "over_seconds": values[0]["rates"]["over_seconds"]}
    waits = [value["oldest_ready"] for value in values if value["oldest_ready"] is not None]
    stores = [value["store"] for value in values]
    alarms = []
    for part in parts:
        for alarm in marked(part, part.value["alarms"]):
            if alarm["function"] is None:
                alarm["text"] = f"{part.node}: {alarm['text']}"
            alarms.append(alarm)
    return {
        **values[0],
        "jobs": jobs,
        "counts": added(value["counts"] for value in values),
        "rates": rates,
        "oldest_ready": max(waits, key=lambda wait: wait["seconds"], default=None),
        "drain_seconds": drain_seconds(jobs["ready"] + jobs["running"], rates),
        "functions": sum(value["functions"] for value in values),
        "paused_functions": sum(value["paused_functions"] for value in values),
        "workers": merged_counts([value["workers"] for value in values]),
        "connections": merged_counts([value["connections"] for value in values]),
        "store": {
            **stores[0],
            "error": next((store["error"] for store in stores if store["error"]), ""),
            "waiting_changes": sum(store["waiting_changes"] for store in stores),
        },
        "memory": merged_memory([value["memory"] for value in values]),
        "alarms": sorted(alarms, key=lambda alarm: alarm["level"] != "critical"),
    }


def merged_counts(counts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Sums, and their parts by protocol."""
    by_protocol = added(each["by_protocol"] for each in counts)
    sums = added({name: value for name, value in each.items() if name != "by_protocol"} for each in counts)
    return {**sums, "by_protocol": dict(sorted(by_protocol.items()))}


def merge_flows(parts: Parts, arguments: Arguments) -> Any:
    """Sums by pair. Of times within which 99 of 100 ended, the longest of any node is the most that can be said."""
    by_pair: dict[tuple[str, str], list[Any]] = {}
    for part in parts:
        for flow in part.value["flows"]:
            by_pair.setdefault((flow["submitter"], flow["worker"]), []).append(flow)
    flows = [merged_flow(pair, some) for pair, some in sorted(by_pair.items())]
    return {
        "since": min(part.value["since"] for part in parts),
        "submitters": sorted({flow["submitter"] for flow in flows}),
        "workers": sorted({flow["worker"] for flow in flows}),
        "flows": flows,
    }


def merged_flow(pair: tuple[str, str], flows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    counts = [flow["done"] + flow["failed"] for flow in flows]
    return {
        "submitter": pair[0],
        "worker": pair[1],
        **added({name: flow[name] for name in ("done", "failed", "rate")} for flow in flows),
        "mean_seconds": mean([flow["mean_seconds"] for flow in flows], counts),
        "p99_seconds": longest(flow["p99_seconds"] for flow in flows),
    }


def mean(means: Sequence[float | None], counts: Sequence[int]) -> float | None:
    """The mean of all, from the means of some."""
    known = [(value, count) for value, count in zip(means, counts, strict=True) if value is not None]
    total = sum(count for _, count in known)
    return round(sum(value * count for value, count in known) / total, 6) if total else None


def longest(seconds: Iterable[float | None]) -> float | None:
    """The longest of these; null is longer than all."""
    found = 0.0
    for value in seconds:
        if value is None:
            return None
        found = max(found, value)
    return found


def merge_storage(parts: Parts, arguments: Arguments) -> Any:
    values = [part.value for part in parts]
    with_commits = [value for value in values if value["commits"]]
    logs = [value["joblog"] for value in values if value["joblog"] is not None]
    counts = [value["commits"] for value in values]
    return {
        **values[0],
        "error": next((value["error"] for value in values if value["error"]), ""),
        **added({name: value[name] for name in ("waiting_changes", "commits")} for value in values),
        "mean_commit_seconds": mean([value["mean_commit_seconds"] for value in values], counts),
        "p50_commit_seconds": longest(value["p50_commit_seconds"] for value in with_commits) if with_commits else None,
        "p99_commit_seconds": longest(value["p99_commit_seconds"] for value in with_commits) if with_commits else None,
        "joblog": {**logs[0], **added({name: log[name] for name in ("written", "waiting", "dropped")} for log in logs)}
        if logs
        else None,
    }


def merge_explanation(parts: Parts, arguments: Arguments) -> Any:
    """The reasons of the node that was asked, and those of others why they refuse."""
    reasons = [
        {**reason, "text": f"{part.node}: {reason['text']}", "data": {**reason["data"], "node": part.node}}
        for part in parts
        for reason in part.value["reasons"]
        if reason["word"] != "accepting"
    ]
    memory = merged_memory([part.value["memory"] for part in parts])
    return {"reasons": reasons or parts[0].value["reasons"], "memory": memory}


# --- figures over time ---

# Of these, all nodes together have the highest, and not the sum.
HIGHEST: Final = frozenset({"oldest"})


def together(name: str, values: Sequence[float | None]) -> float | None:
    """Merge the values that the nodes have for one figure; `None` if no node has a value."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    return max(known) if name in HIGHEST else sum(known)


def merge_series(parts: Parts, arguments: Arguments) -> Any:
    values = [part.value for part in parts]
    times = sorted({time for value in values for time in value["times"]})
    begins = [value["begins_at"] for value in values if value["begins_at"] is not None]
    by_time = [
        {name: dict(zip(value["times"], points, strict=True)) for name, points in value["values"].items()}
        for value in values
    ]
    return {
        **values[0],
        "begins_at": min(begins, default=None),
        "times": times,
        "values": {
            name: [together(name, [points[name].get(time) for points in by_time]) for time in times]
            for name in values[0]["values"]
        },
        "functions": unique_names(name for value in values for name in value["functions"]),
    }


def unique_names(names: Iterable[Any]) -> list[Any]:
    return list({name_key(name): name for name in names}.values())


def merge_past(parts: Parts, arguments: Arguments) -> Any:
    """What the nodes have recorded; the job log, which says what ran, is the same for all."""
    values = [part.value for part in parts]
    totals = [value["totals"] for value in values if value["totals"] is not None]
    by_name: dict[str, list[Any]] = {}
    for value in values:
        for function in value["functions"]:
            by_name.setdefault(name_key(function["function"]), []).append(function)
    return {
        **values[0],
        "totals": {**figures_together(totals, ("at", "step"))} if totals else None,
        "functions": [figures_together(functions, ("function",)) for functions in by_name.values()],
    }


def figures_together(rows: Sequence[Mapping[str, Any]], same: tuple[str, ...]) -> dict[str, Any]:
    return {
        name: value if name in same else together(name, [row[name] for row in rows]) for name, value in rows[0].items()
    }


# --- changes ---


def merge_cancelled(parts: Parts, arguments: Arguments) -> Any:
    return {
        "cancelled": [handle for part in parts for handle in part.value["cancelled"]],
        "count": sum(part.value["count"] for part in parts),
        "more": any(part.value["more"] for part in parts),
    }


def merge_retried(parts: Parts, arguments: Arguments) -> Any:
    """All nodes search the same history: to go on where the first of them has stopped misses nothing."""
    return {
        "retried": [handle for part in parts for handle in part.value["retried"]],
        "count": sum(part.value["count"] for part in parts),
        "next_before_id": max([part.value["next_before_id"] or 0 for part in parts]) or None,
    }


def merge_declared(parts: Parts, arguments: Arguments) -> Any:
    values = [part.value for part in parts]
    return {
        **values[0],
        "schedules": unique_names(name for value in values for name in value["schedules"]),
        "functions": unique_names(name for value in values for name in value["functions"]),
    }


def merge_controlled(parts: Parts, arguments: Arguments) -> Any:
    return {
        "number": parts[0].value["number"],
        "told": all_marked(parts, "told"),
        "not_controllable": all_marked(parts, "not_controllable")[:MOST_NAMED],
    }


def merge_bulk(parts: Parts, arguments: Arguments) -> Any:
    """One action of several nodes. Its id consists of those of its parts."""
    values = [part.value for part in parts]
    states = {value["state"] for value in values}
    return {
        **values[0],
        "id": "+".join(sorted(value["id"] for value in values if value["id"])),
        "state": next((state for state in ("running", "aborted") if state in states), values[0]["state"]),
        **added({name: value[name] for name in ("matched", "handled", "changed")} for value in values),
        "examples": [handle for value in values for handle in value["examples"]][:10],
        "created_at": min(value["created_at"] for value in values),
    }


def merge_bulk_actions(parts: Parts, arguments: Arguments) -> Any:
    """The action that was named, or all parts of all actions."""
    if arguments["id"] is None:
        return sorted(merge_rows(parts, arguments), key=lambda row: (row["created_at"], row["id"]))
    return [merge_bulk([NodePart(part.node, value) for part in parts for value in part.value], arguments)]


MERGES: Final[Mapping[str, Callable[[Parts, Arguments], Any]]] = {
    "server": merge_server,
    "overview": merge_overview,
    "flows": merge_flows,
    "series": merge_series,
    "at": merge_past,
    "storage": merge_storage,
    "connections": merge_connections,
    "explain_server": merge_explanation,
    "workers": merge_rows,
    "control_workers": merge_controlled,
    "functions": merge_functions,
    "jobs": merge_jobs,
    "cancel": merge_cancelled,
    "retry": merge_retried,
    "bulk": merge_bulk,
    "bulk_actions": merge_bulk_actions,
    "abort_bulk": merge_bulk,
    "declare": merge_declared,
    "schedules": merge_schedules,
}
