"""What is printed at the end: one table, and for each failure how to see it again."""

from __future__ import annotations

from collections import Counter

from torture.run import Run, Tally

# What each count is called, in the order of the table.
COUNTS = {
    "runs": "runs",
    "kills": "servers killed",
    "kills_while_starting": "  of these while starting",
    "stops": "servers stopped in order",
    "pauses": "servers paused and continued",
    "images": "power-loss images started",
    "injected_errors": "I/O errors injected",
    "database_faults": "times PostgreSQL was restarted, killed or disconnected",
    "database_restarts": "  of these restarted or killed while a cluster ran",
    "network_faults": "nodes disconnected from PostgreSQL or from each other",
    "fail_overs": "fail-overs of PostgreSQL",
    "fillings": "times the disk was full",
    "jumps": "clock jumps",
    "cuts": "connections cut or half-closed",
    "submissions": "acknowledged submissions",
    "hand_outs": "jobs handed out",
    "completions": "acknowledged ends",
    "simulated_events": "simulated events",
}
VIOLATIONS = ("lost", "run again", "doubled", "attempts", "held", "early")


def table(tally: Tally) -> str:
    rows = [(title, f"{tally.counts[name]:,}") for name, title in COUNTS.items()]
    kinds = Counter(violation.kind for violation in tally.violations)
    rows += [(kind, f"{kinds[kind]:,}") for kind in VIOLATIONS]
    rows.append(("other violations", f"{sum(kinds.values()) - sum(kinds[kind] for kind in VIOLATIONS):,}"))
    rows.append(("longest recovery", f"{tally.longest_recovery_seconds:.2f} s"))
    takeovers = sorted(tally.takeover_seconds)
    if takeovers:
        middle, late = takeovers[len(takeovers) // 2], takeovers[len(takeovers) * 99 // 100]
        rows.append(("takeovers: median, p99, longest", f"{middle:.2f}, {late:.2f}, {takeovers[-1]:.2f} s"))
    width = max(len(title) for title, _ in rows)
    figures = max(len(figure) for _, figure in rows)
    return "\n".join(f"{title:<{width}}  {figure:>{figures}}" for title, figure in rows)


def failure_text(scenario: str, seed: int, run: Run) -> str:
    """The first violations, where the files are, and the command that does it again."""
    violations = run.tally.violations
    told = "\n\n".join(f"{kind}: {text}" for kind, text in violations[:3])
    return (
        f"{scenario}, seed {seed}: {len(violations)} violations, the first of them:\n{told}\n"
        f"the store, the ledger and what the server printed are in {run.directory}\n"
        f"once more: python -m torture --scenario {scenario} --seed {seed} --runs 1"
    )
