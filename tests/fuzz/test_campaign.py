"""A campaign runs targets in turn, counts their inputs, and goes on where it has stopped."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from fuzz.campaign import Campaign


def test_the_target_with_the_fewest_inputs_is_next_until_all_have_reached_the_goal(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path / "counts.json", ("mutation",))
    campaign.counts = {"a": {"mutation": 5, "atheris": 6, "slices": 1000}, "b": {"mutation": 10, "slices": 1}}
    assert campaign.next_target(["a", "b"], 11) == "b"
    assert campaign.next_target(["a", "b", "c"], 11) == "c"
    assert campaign.next_target(["a", "b"], 10) is None


def test_a_campaign_goes_on_where_it_has_stopped(tmp_path: Path) -> None:
    counts = tmp_path / "counts.json"
    command = [
        sys.executable,
        "-m",
        "fuzz.campaign",
        "pingpong-codec",
        "--engine=mutation",
        "--nice=0",
        "--slice-seconds=0.05",
    ]
    totals: list[int] = []
    for _ in range(2):
        goal = totals[-1] + 1 if totals else 1
        subprocess.run([*command, f"--goal={goal}", f"--counts={counts}"], check=True, capture_output=True)
        totals.append(json.loads(counts.read_text())["pingpong-codec"]["mutation"])
    assert 0 < totals[0] < totals[1]
    assert json.loads(counts.read_text())["pingpong-codec"]["slices"] == 2
