"""Ways through several devices, and back."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from switchgear.protocols.multipart import Message
from switchgear.protocols.wmp.device_routing import Device
from tests.protocols.wmp_device.nets import DeviceNode, Manager, Node, Worker, command_and_headers, message


def test_a_job_through_two_devices_hop_by_hop() -> None:
    """w - near - far - m, where m is the second manager of `far`, and `far` the first of `near`."""
    near, far = Device(b"near", 1), Device(b"far", 2)

    def up(frames: Message, *expected: tuple[list[bytes] | None, list[bytes]]) -> Message:
        """The route and the path after each device."""
        (_, frames) = near.from_below([b"w", *frames])[0]
        assert routes_of(frames) == expected[0]
        passed_on = far.from_below([b"near", *frames])
        assert passed_on[-1][0] == 1
        assert routes_of(passed_on[-1][1]) == expected[1]
        return passed_on[-1][1]

    def down(frames: Message, *expected: tuple[bytes, tuple[list[bytes] | None, list[bytes]]]) -> Message:
        """The envelope, the route and the path after each device."""
        passed_on = far.from_above(1, frames)
        assert passed_on is not None
        assert (passed_on[0], routes_of(passed_on[1:])) == expected[0]
        passed_on = near.from_above(0, passed_on[1:])
        assert passed_on is not None
        assert (passed_on[0], routes_of(passed_on[1:])) == expected[1]
        return passed_on[1:]

    up(message("READY", roles=["f"]), (None, [b"w"]), (None, [b"near", b"w"]))
    # The manager's socket adds b"far": the path of the worker is far, near, w.
    for command, payload in (("WAKE", None), ("TAKE", b"payload")):
        frames = down(
            message(command, payload, to=[b"near", b"w"], path=[b"m"], job=b"1"),
            (b"near", ([b"w"], [b"\0\1", b"m"])),
            (b"w", ([], [b"\0\0", b"\0\1", b"m"])),
        )
        assert command_and_headers(frames)[0] == command
    for command, payload in (("GIVE", None), ("STATUS", None), ("DONE", b"result")):
        frames = up(
            message(command, payload, to=[b"\0\0", b"\0\1", b"m"], job=b"1"),
            ([b"\0\1", b"m"], [b"w"]),
            ([b"m"], [b"near", b"w"]),
        )
        assert command_and_headers(frames)[0] == command


def routes_of(frames: Message) -> tuple[list[bytes] | None, list[bytes]]:
    headers = command_and_headers(frames)[1]
    return headers.get("to"), headers["path"]


def chain(length: int) -> tuple[Manager, list[DeviceNode], Worker]:
    """A worker, so many devices, and a manager."""
    manager = Manager(b"m")
    devices: list[DeviceNode] = []
    for number in range(length):
        devices.append(DeviceNode(b"d%d" % number, [devices[-1] if devices else manager]))
    return manager, devices, Worker(b"w", [devices[-1] if devices else manager])


@pytest.mark.parametrize("length", [0, 1, 2, 15])
def test_up_to_fifteen_devices_in_a_row(length: int) -> None:
    manager, _, worker = chain(length)
    worker.say(0, "READY", roles=["f"])
    ((path, _, _),) = manager.heard
    assert path == [*(b"d%d" % number for number in range(length)), b"w"]
    assert manager.say(path, "TAKE", b"x", job=b"1")
    ((_, command, headers),) = worker.heard
    assert (command, headers["path"]) == ("TAKE", [b"\0\0"] * length + [b"m"])
    worker.say(0, "DONE", b"y", job=b"1", to=headers["path"])
    assert manager.heard[-1][:2] == (path, "DONE")


def test_seventeen_devices_are_too_many() -> None:
    manager, devices, worker = chain(17)
    worker.say(0, "READY", roles=["f"])
    assert manager.heard == []
    assert devices[0].device.problem.startswith("TOO_FAR")


def test_a_job_lost_on_the_way_comes_back_from_where_it_was_lost() -> None:
    manager, devices, worker = chain(3)
    worker.say(0, "READY", roles=["f"])
    path = manager.heard[0][0]
    del devices[1].below[b"d2"]  # the connection between the second and the third
    manager.say(path, "TAKE", b"x", job=b"1", role="f")
    assert worker.heard == []
    back, command, headers = manager.heard[-1]
    assert (back, command, headers["job"], headers["status"]) == (path, "DONE", b"1", "returned")


def test_devices_that_are_each_others_managers_do_not_multiply_messages() -> None:
    manager = Manager(b"m")
    one = DeviceNode(b"one", [manager])
    two = DeviceNode(b"two", [manager, one])
    one.above.append(two)
    one.device = Device(b"one", 2)
    two.below[b"one"] = one
    worker = Worker(b"w", [one])
    worker.say(0, "READY", roles=["f"])
    assert sorted(path for path, _, _ in manager.heard) == [[b"one", b"w"], [b"two", b"one", b"w"]]
    assert one.device.problem.startswith("LOOP")


@st.composite
def nets(draw: st.DrawFn) -> tuple[list[Manager], Worker]:
    """Some managers, some devices that each know some of those before, a worker that knows some of all."""
    managers = [Manager(b"m%d" % number) for number in range(draw(st.integers(1, 3)))]
    nodes: list[Node] = [*managers]
    for number in range(draw(st.integers(0, 6))):
        above = draw(st.lists(st.sampled_from(nodes), min_size=1, max_size=3, unique=True))
        nodes.append(DeviceNode(b"d%d" % number, above))
    return managers, Worker(b"w", draw(st.lists(st.sampled_from(nodes), min_size=1, max_size=4, unique=True)))


@settings(max_examples=200, deadline=None)
@given(nets())
def test_an_answer_returns_to_its_origin(net: tuple[list[Manager], Worker]) -> None:
    managers, worker = net
    for connection in range(len(worker.above)):
        worker.say(connection, "READY", roles=["f"])
    calls = [(manager, path) for manager in managers for path, _, _ in manager.heard]
    paths = [(manager.identity, *path) for manager, path in calls]
    assert len(set(paths)) == len(paths)  # each way once
    for manager, path in calls:
        worker.heard.clear()
        for each in managers:
            each.heard.clear()
        assert manager.say(path, "WAKE")
        ((connection, command, headers),) = worker.heard
        assert (command, headers["path"][-1]) == ("WAKE", manager.identity)
        worker.say(connection, "GIVE", to=headers["path"])
        assert [heard[:2] for heard in manager.heard] == [(path, "GIVE")]
        assert all(other is manager or not other.heard for other in managers)
