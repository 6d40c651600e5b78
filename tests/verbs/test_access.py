"""Who may use which verb."""

from __future__ import annotations

import pytest

from switchgear.verbs.access import ALL_ROLES, AccessRules, Role, refusal_of
from switchgear.verbs.operator_verb import OperatorVerb
from switchgear.verbs.table import VERBS

ROWS = pytest.mark.parametrize("verb", VERBS.values(), ids=lambda verb: verb.name)


class PeerAtAddress:
    """A peer of which this is known."""

    def __init__(self, is_loopback: bool = True, same_user: bool = True) -> None:
        self.is_loopback = is_loopback
        self.same_user = same_user

    def is_of_same_user(self) -> bool:
        return self.same_user


@ROWS
def test_the_server_s_own_user_may_do_everything(verb: OperatorVerb) -> None:
    assert refusal_of(verb, PeerAtAddress(), AccessRules()) == ""


@ROWS
@pytest.mark.parametrize("who", [PeerAtAddress(same_user=False), PeerAtAddress(is_loopback=False, same_user=False)])
def test_others_may_do_everything_but_stop_the_server(verb: OperatorVerb, who: PeerAtAddress) -> None:
    assert bool(refusal_of(verb, who, AccessRules())) == (verb.name == "shutdown")


@pytest.mark.parametrize(
    ("allowed", "own_user", "other_user", "other_machine"),
    [
        ("never", False, False, False),
        ("same-user", True, False, False),
        ("loopback", True, True, False),
        ("anywhere", True, True, True),
    ],
)
def test_who_may_stop_the_server(allowed: str, own_user: bool, other_user: bool, other_machine: bool) -> None:
    rules = AccessRules(shutdown=allowed)
    peers = [PeerAtAddress(), PeerAtAddress(same_user=False), PeerAtAddress(is_loopback=False, same_user=False)]
    may = [not refusal_of(VERBS["shutdown"], peer, rules) for peer in peers]
    assert may == [own_user, other_user, other_machine]


@ROWS
@pytest.mark.parametrize("role", Role, ids=lambda role: role.value)
def test_a_role_opens_the_verbs_of_its_row(verb: OperatorVerb, role: Role) -> None:
    refusal = refusal_of(verb, PeerAtAddress(), AccessRules(shutdown="anywhere"), frozenset({role}))
    assert bool(refusal) == (role not in verb.roles)
    if refusal:
        assert refusal.startswith(f"{verb.name} needs the role ")


def test_the_roles_of_the_verbs() -> None:
    """What changes something needs more than reading, and workers may declare what belongs to their programs."""
    for verb in VERBS.values():
        assert verb.roles <= ALL_ROLES
        assert not (verb.changes and Role.READ in verb.roles), verb.name
    assert {verb.name for verb in VERBS.values() if Role.WORK in verb.roles} == {
        "limit",
        "schedule",
        "declare",
        "complete",
        "wait_for",
        "spawn",
    }
    assert {verb.name for verb in VERBS.values() if Role.SUBMIT in verb.roles} == {
        "job",
        "states",
        "explain",
        "explain_server",
        "complete",
        "wait_for",
        "spawn",
    }
