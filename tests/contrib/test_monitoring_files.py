"""Alerts and dashboard in contrib/ use metrics that exist, and promtool and Prometheus understand them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from switchgear.net.monitoring.metrics import METRICS
from switchgear.telemetry import EVENTS
from tests.support.prometheus import promtool, running_prometheus
from tests.support.servers import HOST, free_port, running_switchgear
from tests.support.waiting import eventually

ROOT = Path(__file__).parents[2]
ALERTS = ROOT / "contrib" / "prometheus" / "alerts.yml"
ALERT_TESTS = ALERTS.with_name("alerts_test.yml")
DASHBOARD = ROOT / "contrib" / "grafana" / "switchgear.json"
PAGE = ROOT / "docs" / "howto" / "monitoring.md"

# What Grafana puts in the place of its variables.
VARIABLES = {"$__rate_interval": "1m", "$instance": ".*", "$function": ".*"}


def alert_names() -> list[str]:
    return re.findall(r"- alert: (\w+)", ALERTS.read_text())


def expressions() -> Iterator[tuple[str, str]]:
    """Every expression of the dashboard, with the title of its panel."""
    dashboard: dict[str, Any] = json.loads(DASHBOARD.read_text())
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            expression = target["expr"]
            for variable, value in VARIABLES.items():
                expression = expression.replace(variable, value)
            yield panel["title"], expression


def sample_names() -> set[str]:
    names = set(METRICS)
    for metric in METRICS.values():
        if metric.kind == "histogram":
            names |= {f"{metric.name}_{end}" for end in ("bucket", "count", "sum")}
    return names


# --- alerts ---


def test_promtool_understands_the_alerts() -> None:
    assert "SUCCESS" in promtool("check", "rules", str(ALERTS))


def test_the_alerts_fire_when_they_should() -> None:
    assert "SUCCESS" in promtool("test", "rules", ALERT_TESTS.name, cwd=ALERTS.parent)


@pytest.mark.parametrize("name", alert_names())
def test_every_alert_is_tried_and_explained(name: str) -> None:
    tests = ALERT_TESTS.read_text()
    assert re.search(rf"alertname: {name}\n\s+exp_alerts:\n\s+- exp_labels", tests), "no test in which it fires"
    assert f"`{name}`" in PAGE.read_text()


def test_alerts_are_about_metrics_and_events_that_exist() -> None:
    for file in (ALERTS, ALERT_TESTS):
        text = file.read_text()
        assert set(re.findall(r"switchgear_\w+", text)) <= sample_names()
        assert set(re.findall(r'event="(\w+)"', text)) <= set(EVENTS)


# --- the dashboard ---


def test_the_dashboard_shows_every_metric_and_no_other() -> None:
    named = {name for _, expression in expressions() for name in re.findall(r"switchgear_\w+", expression)}
    assert named <= sample_names()
    families = {re.sub("_(bucket|count|sum)$", "", name) for name in named}
    assert families == set(METRICS)


def test_labels_of_the_dashboard_exist() -> None:
    for title, expression in expressions():
        for name, selectors in re.findall(r"(switchgear_\w+)\{([^}]*)\}", expression):
            metric = METRICS[re.sub("_(bucket|count|sum)$", "", name)]
            labels = set(re.findall(r'(\w+)=~?"', selectors))
            assert labels <= {"job", "instance", *metric.labels}, title


def test_panels_do_not_cover_one_another() -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert taken.setdefault((x, y), panel["title"]) == panel["title"]


@pytest.mark.system
def test_a_real_prometheus_evaluates_alerts_and_dashboard() -> None:
    target = f"{HOST}:{free_port()}"
    with (
        running_switchgear("--listen", f"http://{target}"),
        running_prometheus(target, rules=str(ALERTS)) as prometheus,
    ):
        eventually(lambda: prometheus.query("switchgear_storage_up == 1"), "Prometheus has read the server")
        for title, expression in expressions():
            try:
                prometheus.query(expression)
            except OSError as error:
                raise AssertionError(f"{title}: {expression}") from error
        (group,) = prometheus.ask("/api/v1/rules")["groups"]
        eventually(
            lambda: all(rule["health"] == "ok" for rule in prometheus.ask("/api/v1/rules")["groups"][0]["rules"]),
            "all rules are evaluated",
        )
        assert [rule["name"] for rule in group["rules"]] == alert_names()


# --- the page ---


@pytest.mark.parametrize("name", METRICS)
def test_the_page_has_the_table_of_metrics(name: str) -> None:
    metric = METRICS[name]
    labels = ", ".join(f"`{label}`" for label in metric.labels) or "–"
    assert f"| `{name}` | {metric.kind} | {labels} | {metric.help} |\n" in PAGE.read_text()
